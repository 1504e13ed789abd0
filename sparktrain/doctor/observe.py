"""What the doctor asks of this machine, of Hadoop's daemons and of the store. Each question has its deadline."""

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyspark
from pyspark.sql import SparkSession

from sparktrain.clock import Clock
from sparktrain.cluster.check_finding import Finding, passed, warned
from sparktrain.cluster.launch_warnings import Driver
from sparktrain.cluster.yarn_client import get_json
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.versions import installed_versions
from sparktrain.doctor.hadoop import AUTHENTICATION_KEY, EXECUTOR_KEY, kerberos_finding, ticket_of
from sparktrain.doctor.rollcall import Shared
from sparktrain.protocol.checkup_report import PACKAGES
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hadoop_conf import configured, split, token_file
from sparktrain.store.url import open_store

COMMAND_S = 5.0
"""For a command of this machine."""
STORE_S = 8.0
"""How long a call of the store goes on trying."""

_JAVA = 'exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version'
_VERSION = re.compile(r'version "([^"]+)"')
_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_HTTP = ("dfs.http.policy", "dfs.ha.namenodes.", "dfs.namenode.http", "dfs.nameservices")


def driver_of(spark: SparkSession | None) -> Driver:
    """This process, and its session's Spark. Blocks."""
    return Driver(
        host=socket.gethostname(),
        python=platform.python_version(),
        versions=installed_versions(PACKAGES),
        pyspark=pyspark.__version__,
        java=java_here() if spark is None else java_of(spark),
        spark=None if spark is None else spark.version,
    )


def java_of(spark: SparkSession) -> str:
    """Of the driver's JVM; empty with Spark Connect, whose JVM is elsewhere."""
    context = getattr(spark, "_sc", None)
    return str(context._jvm.System.getProperty("java.version")) if context is not None else ""


def java_here() -> str:
    """Of the Java that Spark would start; empty when there is none."""
    return java_version(_said("sh", "-c", _JAVA)[1])


def java_version(said: str) -> str:
    """From what `java -version` prints."""
    found = _VERSION.search(said)
    return found[1] if found else ""


def hadoop_settings() -> dict[str, str]:
    """What Hadoop's configuration says about security, and whether it has a YARN. Raises SpecError."""
    return configured(_FILES, (AUTHENTICATION_KEY, EXECUTOR_KEY, "yarn.resourcemanager."))


def kerberos(settings: Mapping[str, str], clock: Clock) -> list[Finding]:
    """The ticket of this process, where Hadoop wants one. Blocks."""
    if settings.get(AUTHENTICATION_KEY, "simple") != "kerberos":
        return []
    if shutil.which("klist") is None:
        told = "Hadoop wants Kerberos tickets, and there is no klist here to tell how long this one lasts"
        return [warned("kerberos", told, "install krb5-user (Debian) or krb5-workstation (Red Hat)")]
    valid = _said("klist", "-s")[0] == 0
    _, said = _said("env", "LC_ALL=C", "klist")  # it writes times in the form of its locale
    return [kerberos_finding(valid, ticket_of(said), clock.wall(), bool(token_file()))]


def _said(*command: str) -> tuple[int, str]:
    """Exit code, and all that it prints. Raises OSError, TimeoutExpired."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    return done.returncode, done.stdout + done.stderr


def namenode_urls(address: StoreAddress, settings: Mapping[str, str]) -> list[str]:
    """Where the NameNodes of a store answer HTTP: `settings` are of `hdfs-site.xml`, beside what `address` has."""
    known = {**settings, **address.settings}
    authority = split(address.url)[0]
    if address.url.startswith(("webhdfs:", "swebhdfs:")):
        scheme = "http" if address.url.startswith("webhdfs:") else "https"
        return [f"{scheme}://{each}" for each in authority.split(",")]
    secure = known.get("dfs.http.policy") == "HTTPS_ONLY"
    scheme, port = ("https", 9871) if secure else ("http", 9870)
    ids = [each.strip() for each in known.get(f"dfs.ha.namenodes.{authority}", "").split(",") if each.strip()]
    urls = []
    for suffix in [f".{authority}.{each}" for each in ids] or [""]:
        rpc = known.get(f"dfs.namenode.rpc-address{suffix}", "") if suffix else authority
        host = rpc.rpartition(":")[0]
        urls.append(f"{scheme}://{known.get(f'dfs.namenode.{scheme}-address{suffix}') or f'{host}:{port}'}")
    return urls


def namenode_settings(address: StoreAddress) -> tuple[dict[str, str], str]:
    """The settings of the first NameNode that tells them, and which one it is. Blocks. Raises OSError: none does."""
    urls = namenode_urls(address, configured(("hdfs-site.xml",), _HTTP))
    problem: Exception = OSError("there is none")
    for url in urls:
        try:
            told = get_json(f"{url}/conf?format=json")["properties"]
            return {str(each["key"]): str(each["value"]) for each in told}, url
        except Exception as error:  # whatever another version tells; the next one may answer
            problem = error
    raise OSError(f"no NameNode tells its settings ({', '.join(urls)}: {problem})")


def prove(directory: str, clock: Clock) -> tuple[list[Finding], Shared]:
    """Prove the store, and leave a file for the slots to see. Blocks.

    Raises RunDirectoryError and OSError when the store does not do what a run needs; SpecError for what is none.
    """
    store = open_store(StoreAddress(directory, timeout_s=STORE_S))
    shared = Shared(store.address, f"probe-{uuid4().hex}", made=_absent(store))
    begun = clock.now()
    try:
        store.probe()
        took_s = clock.now() - begun
        store.put_if_absent(shared.marker, b"sparktrain doctor")
    except BaseException:
        _remove(shared.made)
        raise
    told = f"{store.where()}: a file is created once, made durable, read back and deleted, in {took_s * 1000:.0f} ms"
    found = [passed("store", told)]
    if shared.made:
        step = "the first run makes it; correct --dir if you meant another"
        found.append(warned("directory", f"{store.where()} does not exist", step))
    return found, shared


def forget(shared: Shared) -> None:
    """Delete what `prove` has left. Blocks. Raises OSError."""
    store: Store = open_store(shared.address)
    store.delete(shared.marker)
    _remove(shared.made)


def _absent(store: Store) -> tuple[str, ...]:
    """The folders of this machine that the first file in `store` makes, the outermost last."""
    scheme, marked, _ = store.address.url.partition(":/")
    if marked and scheme != "file":
        return ()
    home = Path(store.where())
    return tuple(str(folder) for folder in (home, *home.parents) if not folder.exists())


def _remove(folders: Iterable[str]) -> None:
    with suppress(OSError):  # somebody has put something there meanwhile
        for folder in folders:
            os.rmdir(folder)
