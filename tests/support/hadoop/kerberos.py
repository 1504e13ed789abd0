"""Kerberos on this machine: a KDC with a realm of its own, and HDFS that needs a ticket or a token."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.daemons import Cluster, DaemonError, story, wait_until
from tests.support.hadoop import java
from tests.support.hadoop.clusters import READY_TIMEOUT_S, Hdfs
from tests.support.hadoop.daemons import Daemon
from tests.support.hadoop.ha import HaHdfs
from tests.support.hadoop.java import KRB5_CONF, TICKETS, TOOL_TIMEOUT_S
from tests.support.hadoop.ports import HOST, Ports

REALM = "TEST.LOCAL"
SUPERUSER = "hdfs"

_SERVICE = f"{SUPERUSER}/localhost"
"""The principal of all daemons of HDFS: who has its name may do anything there."""
_FETCHER = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
_CONNECT_S = 1.0
_KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = {address}
    }}
"""
_KDC_CONF = """\
[kdcdefaults]
    kdc_listen = {address}
    kdc_tcp_listen = {address}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/kadm5.acl
        max_life = 1d
        max_renewable_life = 7d
    }}
"""


class _KdcDaemon(Daemon):
    """MIT's KDC, which is no JVM."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        super().__init__("kdc", "krb5kdc", folder, folder / "kdc.log")
        self._env = env

    def _command(self) -> list[str]:
        return [_program(self.main), "-n"]

    def _environment(self) -> Mapping[str, str]:
        return self._env


class Kdc(Cluster):
    """The key distribution centre of realm `REALM`, with all that it keeps below `folder`.

    Its methods block for some hundredths of a second. They raise DaemonError when a program of Kerberos fails, or is
    not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.krb5_conf = folder / KRB5_CONF
        """What `KRB5_CONFIG` names for clients, and a JVM's `java.security.krb5.conf`."""
        self._reserved = Ports()
        self._port = 0
        self._daemon = _KdcDaemon(folder, self._environment())

    def close(self) -> None:
        """See base class."""
        self._daemon.kill9()
        self._reserved.close()

    def keytab(self, *principals: str) -> Path:
        """A file with the keys of principals, which are made where there are none: `alice`, `hdfs/localhost`."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        if not path.exists():
            for each in principals:
                self._admin(f"addprinc -randkey {each}")
                self._admin(f"ktadd -k {path} {each}")
        return path

    def kinit(self, principal: str, tickets: Path, lifetime_s: int | None = None) -> Path:
        """Get a ticket for a principal, which is made where there is none, into the file `tickets`; that file."""
        options = ["-l", f"{lifetime_s}s"] if lifetime_s is not None else []
        keytab = self.keytab(principal)
        self._run("kinit", *options, "-c", os.fspath(tickets), "-k", "-t", os.fspath(keytab), principal)
        return tickets

    def _start(self) -> None:
        """See base class."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = self._reserved.take()
        address = f"{HOST}:{self._port}"
        self.krb5_conf.write_text(_KRB5_CONF.format(realm=REALM, address=address))
        (self.folder / "kdc.conf").write_text(_KDC_CONF.format(realm=REALM, address=address, folder=self.folder))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of tests")
        self._daemon.start()
        wait_until([self._daemon], self._answers, READY_TIMEOUT_S, "the KDC listens")

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), _CONNECT_S).close()
        except OSError:
            return False
        return True

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment(),
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).splitlines()
            raise DaemonError(story(f"{program} {' '.join(arguments)} ended with status {done.returncode}", lines))

    def _environment(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith("KRB5")}
        profile = os.fspath(self.folder / "kdc.conf")
        return {**mine, "KRB5_CONFIG": os.fspath(self.krb5_conf), "KRB5_KDC_PROFILE": profile}


def _program(name: str) -> str:
    """Where it is. Raises DaemonError."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    if (found := shutil.which(name, path=places)) is None:
        raise DaemonError(f"there is no {name} on the PATH: run `make hadoop`, which installs Kerberos")
    return found


class SecureHdfs(Hdfs):
    """HDFS with Kerberos for daemons and clients. Its commands are those of the superuser.

    Daemons keep to unprivileged ports without TLS, which HDFS allows for tests alone. Clients need the tickets of `Kdc`
    beside `env`. WebHDFS is closed to all.
    """

    def __init__(self, folder: Path, kdc: Kdc, datanodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """`kdc` is started."""
        self.kdc = kdc
        super().__init__(folder, datanodes, _settings(kdc) | dict(settings or {}))

    @property
    def env(self) -> dict[str, str]:
        """See base class."""
        return {**super().env, "KRB5_CONFIG": os.fspath(self.kdc.krb5_conf)}

    def tokens(self, user: str, path: Path) -> Path:
        """Have the NameNode issue a delegation token to a user, into a file as Hadoop writes it; that file.

        Blocks for a second.
        """
        conf = self.folder / f"conf-{user}"
        if not conf.exists():
            shutil.copytree(self.conf, conf)
        self.kdc.kinit(user, conf / TICKETS)
        java.run(_FETCHER, conf, "--renewer", user, os.fspath(path))
        return path

    def home(self, user: str) -> str:
        """The URL of a folder that belongs to a user. Blocks for some seconds."""
        self.cli("-mkdir", "-p", f"/user/{user}")
        self.cli("-chown", user, f"/user/{user}")
        return f"{self.url}/user/{user}"

    def _write_conf(self) -> None:
        super()._write_conf()
        for conf in (self.conf, *(each.conf for each in self.daemons)):
            shutil.copy(self.kdc.krb5_conf, conf / KRB5_CONF)
        self.kdc.kinit(SUPERUSER, self.conf / TICKETS)


class SecureHaHdfs(SecureHdfs, HaHdfs):
    """The same with two NameNodes of one nameservice."""


def _settings(kdc: Kdc) -> dict[str, str]:
    principal, keytab = f"{_SERVICE}@{REALM}", os.fspath(kdc.keytab(_SERVICE, "HTTP/localhost"))
    settings = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.rpc.protection": "authentication",
        "dfs.block.access.token.enable": "true",
        "dfs.web.authentication.kerberos.principal": f"HTTP/localhost@{REALM}",
        "dfs.web.authentication.kerberos.keytab": keytab,
        "ignore.secure.ports.for.testing": "true",
    }
    for daemon in ("namenode", "datanode"):
        settings[f"dfs.{daemon}.kerberos.principal"] = principal
        settings[f"dfs.{daemon}.keytab.file"] = keytab
    return settings


@contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    """A KDC that is ready; ended in any case, whatever becomes of the block."""
    with Kdc(folder) as centre:
        yield centre


@contextmanager
def secure_hdfs(
    folder: Path, kdc: Kdc, datanodes: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[SecureHdfs]:
    """A cluster that is ready; ended in any case, whatever becomes of the block."""
    with SecureHdfs(folder, kdc, datanodes, settings) as cluster:
        yield cluster
