"""The jars of Hadoop, and the JVMs that run what is in them."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from sparktrain.errors import UserError
from tests.support.daemons import DaemonError, story

TOOL_TIMEOUT_S = 60.0
"""For a command, which takes about a second on an idle machine."""
TMP = "tmp"
"""In a folder of configuration: what the JVMs that use it may leave."""
KRB5_CONF = "krb5.conf"
"""In a folder of configuration: where the JVMs that use it find Kerberos; not there without."""
TICKETS = "tickets"
"""Beside it: the tickets of those who run commands with it."""

_POM = Path(__file__).with_name("pom.xml")
_OPENED = ("java.lang", "java.util", "java.net", "java.io")
"""Packages of Java 17 in which Hadoop looks at what is private."""


class JarsMissingError(UserError, FileNotFoundError):
    """The jars of Hadoop were not fetched."""


def jars() -> Path:
    """The folder that scripts/fetch_hadoop.sh has filled. Raises JarsMissingError."""
    pom = _POM.read_bytes()
    version = ElementTree.fromstring(pom).findtext("{*}properties/{*}hadoop.version")
    folder = _cache() / "hadoop" / f"{version}-{sha256(pom).hexdigest()[:8]}"
    if not folder.is_dir():
        raise JarsMissingError(f"the jars of Hadoop are not in {folder}: run `make hadoop`")
    return folder


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktrain"


def java_home() -> str:
    """Where the Java is that daemons run in; containers find theirs by it. Raises DaemonError when there is none."""
    if home := os.environ.get("JAVA_HOME"):
        return home
    if (java := shutil.which("java")) is None:
        raise DaemonError("there is no `java` on the PATH, and JAVA_HOME is not set: run `make setup`")
    return os.fspath(Path(java).resolve().parents[1])


def command(main: str, conf: Path, *arguments: str, heap_mib: int = 256) -> list[str]:
    """How to run the class `main` in a JVM that is small, and starts fast. Raises JarsMissingError."""
    return [
        f"{java_home()}/bin/java",
        *("-Xms24m", f"-Xmx{heap_mib}m"),  # from the largest heap at once, a daemon takes 50 MiB more
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"),
        f"-Djava.io.tmpdir={conf / TMP}",  # where a killed daemon leaves its web pages
        *krb5_option(conf),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        *classes_option(),
        *("-cp", f"{jars()}/*:{conf}"),  # the stored classes are those of the jars, which come first
        main,
        *arguments,
    ]


def stored_classes() -> Path:
    """The file in which `make hadoop` stores Hadoop's classes; it may not be there. Raises JarsMissingError."""
    return jars().with_name(f"{jars().name}.jsa")


def classes_option() -> list[str]:
    """By which a JVM maps Hadoop's stored classes into memory, if there are any: half the work to start."""
    stored = stored_classes()
    return [f"-XX:SharedArchiveFile={stored}"] if stored.exists() else []


def krb5_option(conf: Path) -> list[str]:
    """By which a JVM finds the Kerberos of a folder of configuration, if it has one: they know no variable for it."""
    return [f"-Djava.security.krb5.conf={conf / KRB5_CONF}"] if (conf / KRB5_CONF).exists() else []


def environment(conf: Path) -> Mapping[str, str]:
    """For a JVM: this process' environment, with nothing that concerns another Hadoop."""
    others = ("HADOOP_", "HDFS_", "YARN_", "KRB5")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    tickets = {"KRB5CCNAME": os.fspath(conf / TICKETS)} if (conf / TICKETS).exists() else {}
    return {**mine, **tickets, "HADOOP_CONF_DIR": os.fspath(conf), "JAVA_HOME": java_home()}


def run(main: str, conf: Path, *arguments: str, stdin: str = "") -> str:
    """Run a command of Hadoop to its end; what it printed on stdout. Blocks for a second or two.

    Raises DaemonError when its exit status is not 0, or when it does not end within `TOOL_TIMEOUT_S`.
    """
    name = " ".join((main.rpartition(".")[2], *arguments))
    try:
        done = subprocess.run(
            command(main, conf, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            env=environment(conf),
            timeout=TOOL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise DaemonError(f"{name} did not end within {TOOL_TIMEOUT_S:g} s: is a daemon paused or dead?") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        raise DaemonError(story(f"{name} ended with status {done.returncode}", lines))
    return done.stdout


def compiled(source: Path) -> Path:
    """The folder that has the class of `source`, which uses Hadoop's. Raises DaemonError, JarsMissingError.

    Blocks for a second or two the first time; the same source is compiled once for the same jars.
    """
    digest = sha256(jars().name.encode() + source.read_bytes()).hexdigest()[:16]
    folder = _cache() / "classes" / f"{source.stem}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            _compile(source, made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # no other process was faster
                    raise
    return folder


def _compile(source: Path, folder: Path) -> None:
    javac = f"{java_home()}/bin/javac"
    if not Path(javac).exists():
        raise DaemonError(f"there is no {javac}: install a JDK, such as openjdk-17-jdk-headless, not a JRE alone")
    line = [javac, "-d", os.fspath(folder), "-cp", f"{jars()}/*", os.fspath(source)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise DaemonError(story(f"javac {source.name} ended with status {done.returncode}", done.stderr.splitlines()))
