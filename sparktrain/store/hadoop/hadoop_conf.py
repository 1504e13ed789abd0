"""Hadoop's configuration: read by the driver, and sent to executors, which may have none."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.store.base import process_user
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind

USER = "hadoop.user.name"
"""The setting with the user as which executors write: Hadoop itself has only an environment variable for it."""

_SHIPPED = os.path.join("__spark_conf__", "__hadoop_conf__")
"""The submitter's configuration, which Spark puts below the working directory of a driver on YARN."""
_URL = re.compile(r"([A-Za-z]+)://([^/]*)(/.*)?$")
_PORT = re.compile(r"^[^:]+:[0-9]+$|^\[[0-9A-Fa-f:]+\]:[0-9]+$")
_VARIABLE = re.compile(r"\$\{([^${}]+)\}")
_FOR_CLIENTS = (
    "dfs.blocksize",
    "dfs.client.",
    "dfs.data.transfer.",
    "dfs.encrypt.data.transfer",
    "dfs.ha.namenodes.",
    "dfs.nameservices",
    "dfs.namenode.kerberos.principal",
    "dfs.namenode.rpc-address",
    "dfs.replication",
    "fs.defaultFS",
    "hadoop.rpc.protection",
    "hadoop.security.authentication",
    "hadoop.security.key.provider.path",
    "hadoop.security.token.service.use_ip",
)
"""Prefixes of the settings that a client needs; none is secret."""


def split(url: str) -> tuple[str, str]:
    """Authority and path of a URL. The path is not decoded and has no slash at its end.

    Raises SpecError for anything else.
    """
    match = _URL.match(url)
    if match is None:
        raise SpecError(f"dir ({url}) is not the URL of a directory: write hdfs:///path, or hdfs://host:port/path")
    parts = [part for part in (match[3] or "").split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise SpecError(f"dir ({url}) must have no '.' and '..' in its path: write the path that you mean")
    return match[2], "".join(f"/{part}" for part in parts)


def resolve(address: StoreAddress) -> StoreAddress:
    """`address` of an hdfs:// URL with the settings that another host needs to open the same folder.

    Reads $HADOOP_CONF_DIR, or in a driver on YARN the configuration that Spark has sent, unless `address` has settings
    already. Raises SpecError when the configuration lacks what the URL needs.
    """
    if address.settings:
        return address
    settings, source = _client_settings()
    authority, path = split(address.url)
    if not authority:
        authority = _default_authority(address.url, settings, source)
    nameservices = [name.strip() for name in settings.get("dfs.nameservices", "").split(",") if name.strip()]
    if authority not in nameservices and not _PORT.match(authority):
        raise SpecError(
            f"dir ({address.url}) names {authority}, which is no nameservice of {source or 'any $HADOOP_CONF_DIR'}"
            f"{_of(nameservices)}; write one of those, or hdfs://host:port/path"
        )
    return StoreAddress(f"hdfs://{authority}{path or '/'}", settings | _as_user(settings), address.timeout_s)


def with_user(address: StoreAddress) -> StoreAddress:
    """`address` of a URL that needs no configuration, with the user as which clients write."""
    return address if address.settings else StoreAddress(address.url, _as_user({}), address.timeout_s)


def become(settings: Mapping[str, str]) -> None:
    """Make clients of this process write as the user of the store's driver.

    A user that the environment names already takes precedence.
    """
    if settings.get(USER, process_user()) != process_user():
        os.environ.setdefault("HADOOP_USER_NAME", settings[USER])


def user(settings: Mapping[str, str]) -> str:
    """The user as which a client writes, unless a Kerberos ticket names another."""
    return os.environ.get("HADOOP_USER_NAME") or settings.get(USER) or process_user()


def reversed_namenodes(settings: Mapping[str, str]) -> dict[str, str]:
    """`settings` with the NameNodes of each nameservice in reverse order."""
    return {
        key: ",".join(reversed(value.split(","))) if key.startswith("dfs.ha.namenodes.") else value
        for key, value in settings.items()
    }


def _default_authority(url: str, settings: Mapping[str, str], source: str) -> str:
    if not source:
        raise SpecError(
            f"dir ({url}) names no NameNode, and $HADOOP_CONF_DIR, which would name a default, is not set: set it, or "
            "write hdfs://nameservice/path or hdfs://host:port/path"
        )
    default = settings.get("fs.defaultFS", "")
    if not default.startswith("hdfs://"):
        raise SpecError(
            f"dir ({url}) names no NameNode, and neither does fs.defaultFS ({default or 'not set'}) in {source}: write "
            "hdfs://nameservice/path or hdfs://host:port/path"
        )
    return split(default)[0]


def _of(nameservices: list[str]) -> str:
    return f" (there are: {', '.join(nameservices)})" if nameservices else " (there are none)"


def token_file() -> str:
    """Path of this process' delegation tokens, which a driver on YARN has; empty when there are none."""
    return os.environ.get("HADOOP_TOKEN_FILE_LOCATION", "")


def configured(names: Sequence[str], prefixes: tuple[str, ...], variable: str = "HADOOP_CONF_DIR") -> dict[str, str]:
    """Settings from the files `names` of this process' configuration with a name that starts with one of `prefixes`.

    Later files override earlier ones. Empty without a configuration. Raises SpecError when a file is corrupt.
    """
    return _settings(_folder(variable), names, prefixes)


def _client_settings() -> tuple[dict[str, str], str]:
    """The configuration for clients, and its folder; both empty when there is none."""
    folder = _folder("HADOOP_CONF_DIR")
    return _settings(folder, ("core-site.xml", "hdfs-site.xml"), _FOR_CLIENTS), folder


def _folder(variable: str) -> str:
    """The folder of the configuration; empty when there is none."""
    if folder := os.environ.get(variable) or os.environ.get("HADOOP_CONF_DIR"):
        return folder
    if home := os.environ.get("HADOOP_HOME"):
        return os.path.join(home, "etc", "hadoop")
    return os.path.abspath(_SHIPPED) if os.path.isdir(_SHIPPED) else ""


def _settings(folder: str, names: Sequence[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name in names if folder else ():
        settings |= _properties(Path(folder, name))
    return {key: _expanded(value, settings) for key, value in settings.items() if key.startswith(prefixes)}


def _properties(file: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(file).getroot()
    except FileNotFoundError:
        return {}
    except (OSError, ElementTree.ParseError) as error:
        raise SpecError(f"{file} cannot be read: {error}; see what $HADOOP_CONF_DIR names") from error
    pairs = ((element.findtext("name", ""), element.findtext("value", "")) for element in root.iter("property"))
    return {name.strip(): value.strip() for name, value in pairs if name.strip()}


def _expanded(value: str, settings: Mapping[str, str]) -> str:
    """`value` with variables replaced by other settings of the configuration, also nested ones."""
    # Bounded, because settings may refer to each other in a circle.
    for _ in range(10):
        expanded = _VARIABLE.sub(lambda match: settings.get(match[1], match[0]), value)
        if expanded == value:
            break
        value = expanded
    return value


def _as_user(settings: Mapping[str, str]) -> dict[str, str]:
    if settings.get("hadoop.security.authentication", "simple") != "simple":
        return {}  # the ticket or token names the user
    return {USER: os.environ.get("HADOOP_USER_NAME") or process_user()}


def check(places: Sequence[str]) -> None:
    """Raise HadoopCallError when this machine knows no host of the `HOST:PORT` in `places`; blocks on the name service.

    A name service that does not answer is no error here.
    """
    unknown = [place.rpartition(":")[0].strip("[]") for place in places if ":" in place]
    for host in list(unknown):
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                continue
        return
    if unknown:
        cause = f"the host name {', '.join(map(repr, unknown))} is unknown on this machine"
        raise HadoopCallError(
            cause, "correct the URL, or have this machine know the name (DNS, /etc/hosts)", HdfsErrorKind.REFUSED
        )
