"""The doctor's queries to this machine, Hadoop's daemons and the store, each with a deadline."""

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sparktrain.base.clock import Clock
from sparktrain.cluster.check_finding import Finding, passed, warned
from sparktrain.cluster.launch_warnings import Driver
from sparktrain.cluster.yarn_client import get_json
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.versions import installed_versions
from sparktrain.ops.doctor.hadoop import AUTHENTICATION_KEY, EXECUTOR_KEY, kerberos_finding, ticket_of
from sparktrain.ops.doctor.rollcall import Shared
from sparktrain.protocol.checkup_report import PACKAGES
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hadoop_conf import configured, split, token_file
from sparktrain.store.url import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMAND_S = 5.0
"""The timeout of a command on this machine."""
STORE_S = 8.0
"""How long a call of the store retries."""

_JAVA = 'exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version'
_VERSION = re.compile(r'version "([^"]+)"')
_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_HTTP = ("dfs.http.policy", "dfs.ha.namenodes.", "dfs.namenode.http", "dfs.nameservices")


def driver_of(spark: "SparkSession | None") -> Driver:
    """The facts of this process, and of its session's Spark. Blocks."""
    return Driver(
        host=socket.gethostname(),
        python=platform.python_version(),
        versions=installed_versions(PACKAGES),
        pyspark=_pyspark_version(),
        java=java_here() if spark is None else java_of(spark),
        spark=None if spark is None else spark.version,
    )


def _pyspark_version() -> str:
    """The version of PySpark here; empty without it."""
    try:
        import pyspark
    except ImportError:
        return ""
    return str(pyspark.__version__)


def java_of(spark: "SparkSession") -> str:
    """The Java version of the driver's JVM; empty with Spark Connect, which has it elsewhere."""
    context = getattr(spark, "_sc", None)
    return str(context._jvm.System.getProperty("java.version")) if context is not None else ""


def java_here() -> str:
    """The version of the Java that Spark would start; empty when there is none."""
    return java_version(_output("sh", "-c", _JAVA)[1])


def java_version(output: str) -> str:
    """The version in the output of `java -version`."""
    version_match = _VERSION.search(output)
    return version_match[1] if version_match else ""


def hadoop_settings() -> dict[str, str]:
    """Hadoop's settings of security and of the ResourceManager. Raises SpecError."""
    return configured(_FILES, (AUTHENTICATION_KEY, EXECUTOR_KEY, "yarn.resourcemanager."))


def kerberos(settings: Mapping[str, str], clock: Clock) -> list[Finding]:
    """Check the ticket of this process, where Hadoop needs one. Blocks."""
    if settings.get(AUTHENTICATION_KEY, "simple") != "kerberos":
        return []
    if shutil.which("klist") is None:
        problem = "Hadoop needs Kerberos tickets, and there is no klist here to show when this one expires"
        return [warned("kerberos", problem, "install krb5-user (Debian) or krb5-workstation (Red Hat)")]
    valid = _output("klist", "-s")[0] == 0
    _, printed = _output("env", "LC_ALL=C", "klist")  # the locale determines the format of times
    return [kerberos_finding(valid, ticket_of(printed), clock.wall(), bool(token_file()))]


def _output(*command: str) -> tuple[int, str]:
    """The exit code of a command, and all that it prints. Raises OSError, TimeoutExpired."""
    process = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    return process.returncode, process.stdout + process.stderr


def namenode_urls(address: StoreAddress, settings: Mapping[str, str]) -> list[str]:
    """The HTTP addresses of a store's NameNodes, by `settings` of `hdfs-site.xml` and those of `address`."""
    properties = {**settings, **address.settings}
    authority = split(address.url)[0]
    if address.url.startswith(("webhdfs:", "swebhdfs:")):
        scheme = "http" if address.url.startswith("webhdfs:") else "https"
        return [f"{scheme}://{endpoint}" for endpoint in authority.split(",")]
    secure = properties.get("dfs.http.policy") == "HTTPS_ONLY"
    scheme, port = ("https", 9871) if secure else ("http", 9870)
    ids = [part.strip() for part in properties.get(f"dfs.ha.namenodes.{authority}", "").split(",") if part.strip()]
    urls = []
    for suffix in [f".{authority}.{namenode}" for namenode in ids] or [""]:
        rpc = properties.get(f"dfs.namenode.rpc-address{suffix}", "") if suffix else authority
        host = rpc.rpartition(":")[0]
        urls.append(f"{scheme}://{properties.get(f'dfs.namenode.{scheme}-address{suffix}') or f'{host}:{port}'}")
    return urls


def namenode_settings(address: StoreAddress) -> tuple[dict[str, str], str]:
    """The settings of the first NameNode that answers, and its URL. Blocks. Raises OSError when none answers."""
    urls = namenode_urls(address, configured(("hdfs-site.xml",), _HTTP))
    problem: Exception = OSError("there is none")
    for url in urls:
        try:
            answer = get_json(f"{url}/conf?format=json")["properties"]
            return {str(setting["key"]): str(setting["value"]) for setting in answer}, url
        except Exception as error:  # another version may answer in another form; the next one may work
            problem = error
    raise OSError(f"no NameNode reports its settings ({', '.join(urls)}: {problem})")


def probe(directory: str, clock: Clock) -> tuple[list[Finding], Shared]:
    """Probe the store, and leave a file for the slots to see. Blocks.

    Raises RunDirectoryError and OSError when the store lacks what a run needs; SpecError when the URL is not valid.
    """
    store = open_store(StoreAddress(directory, timeout_s=STORE_S))
    # The probe creates the folders of a directory that does not exist, a mistyped one too: these must not stay.
    shared = Shared(store.address, f"probe-{uuid4().hex}", created_folders=_absent(store))
    start = clock.now()
    try:
        store.probe()
        took_s = clock.now() - start
        store.put_if_absent(shared.marker, b"sparktrain doctor")
    except BaseException:
        _remove(shared.created_folders)
        raise
    steps = f"{store.where()}: a file is created once, made durable, read back and deleted, in {took_s * 1000:.0f} ms"
    findings = [passed("store", steps)]
    if shared.created_folders:
        step = "the first run creates it; correct --dir if you meant another"
        findings.append(warned("directory", f"{store.where()} does not exist", step))
    return findings, shared


def forget(shared: Shared) -> None:
    """Delete what `probe` has left. Blocks. Raises OSError."""
    store: Store = open_store(shared.address)
    store.delete(shared.marker)
    _remove(shared.created_folders)


def _absent(store: Store) -> tuple[str, ...]:
    """The folders of this machine that the first file in `store` creates, the outermost last."""
    scheme, marked, _ = store.address.url.partition(":/")
    if marked and scheme != "file":
        return ()
    home = Path(store.where())
    return tuple(str(folder) for folder in (home, *home.parents) if not folder.exists())


def _remove(folders: Iterable[str]) -> None:
    with suppress(OSError):  # another process has put something there meanwhile
        for folder in folders:
            os.rmdir(folder)
