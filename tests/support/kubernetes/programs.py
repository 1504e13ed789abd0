"""The programs that `make kubernetes` has built, and those of Debian that it has installed."""

import os
import re
import shutil
from hashlib import sha256
from pathlib import Path

from sparktrain.errors import UserError

_SOURCES = Path(__file__).parents[3] / "scripts" / "kubernetes"
_FILES = ("go.mod", "go.sum", "pause/main.go")
_VERSION = re.compile(r"k8s\.io/kubernetes v(\S+)")
_VERSION_OF_SCRIPT = re.compile(r"^version=(\S+)$", re.MULTILINE)
ADMIN_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
"""A user's PATH may lack the folders of daemons."""


class ProgramsMissingError(UserError, FileNotFoundError):
    """The daemons of Kubernetes were not built."""


def programs() -> Path:
    """The folder that scripts/build_kubernetes.sh has filled. Raises ProgramsMissingError."""
    contents = [(_SOURCES / name).read_bytes() for name in _FILES]
    [version] = _VERSION.findall(contents[0].decode())
    folder = _cache() / "kubernetes" / f"{version}-{sha256(b''.join(contents)).hexdigest()[:8]}"
    if not folder.is_dir():
        raise ProgramsMissingError(f"the daemons of Kubernetes are not in {folder}: run `make kubernetes`, as root")
    return folder


def kueue() -> Path:
    """The folder that scripts/build_kueue.sh has filled. Raises ProgramsMissingError."""
    return _built("kueue")


def spark_operator() -> Path:
    """The folder that scripts/build_spark_operator.sh has filled. Raises ProgramsMissingError."""
    return _built("spark-operator")


def _built(name: str) -> Path:
    script = _SOURCES.parent / f"build_{name.replace('-', '_')}.sh"
    [version] = _VERSION_OF_SCRIPT.findall(script.read_text())
    folder = _cache() / name / str(version)
    if not folder.is_dir():
        raise ProgramsMissingError(f"{name} is not in {folder}: run `make {name}`")
    return folder


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sparktrain"


def missing() -> str | None:
    """Why no cluster can start on this machine, for a test that is skipped; None where one can."""
    if os.getuid() != 0:
        return "a cluster needs root"
    absent = [name for name in ("containerd", "runc", "ip") if shutil.which(name, path=ADMIN_PATH) is None]
    if absent:
        return f"{', '.join(absent)} is not installed: run `make kubernetes`"
    try:
        programs()
    except ProgramsMissingError as error:
        return str(error)
    return None
