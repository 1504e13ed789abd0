"""The Python of this process, as files that run in any folder."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from sparktrain.driver.submitted_jobs.env_pack.contents import PackEntry, data_entry, file_entry, link_entry
from sparktrain.errors import SpecError

LIBRARIES = "libexec"
"""The folder of the program, and of the libraries that it needs from this machine."""

_ASK_TIMEOUT_S = 60.0
_LEFT_OUT = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "dist-packages", "test", "tests", "tkinter"}
)
"""Folders of the standard library that training does not import."""
_LEFT_OUT_EXTENSIONS = ("_tkinter.", "nis.", "_test", "xxlimited")
_DEPENDENCY = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)
_OF_THE_NODE = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|util|resolv|anl|nss_.*|gcc_s|stdc\+\+)\.so)", re.IGNORECASE)
"""The C and C++ runtime: a process can have only one, that of the node's own loader."""

_LAUNCHER = """\
#!/bin/sh
# Python of this environment, wherever it was unpacked, with the libraries that it brings along.
home=$(cd "${{0%/*}}/.." && pwd) || exit 127
unset PYTHONHOME
export SPARKTRAIN_PACK_OUTER="${{LD_LIBRARY_PATH-}}"
export LD_LIBRARY_PATH="$home/{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$home/{libraries}/{program}" "$@"
"""
_STARTUP = '''\
"""The launcher limits the environment's libraries to its own Python: programs that it starts run without them."""

import os
import sys

outer = os.environ.pop("SPARKTRAIN_PACK_OUTER", None)
if outer is not None:
    os.environ.pop("LD_LIBRARY_PATH", None)
    if outer:
        os.environ["LD_LIBRARY_PATH"] = outer
    folder, program = os.path.split(sys.executable)
    sys.executable = os.path.join(os.path.dirname(folder), "bin", program)
'''
_STARTUP_MODULE = "_sparktrain_pack"


class Interpreter(Struct, frozen=True):
    """An installed Python."""

    program: Path
    prefix: Path
    stdlib: Path
    site: str
    """Its folder of packages, relative to the prefix."""

    @property
    def name(self) -> str:
        """The path of the program in the pack."""
        return f"python{sys.version_info.major}.{sys.version_info.minor}"


def base() -> Interpreter:
    """The Python of this process, without its virtual environment. Blocks for a moment. Raises SpecError for conda."""
    prefix = Path(sys.base_prefix)
    if (prefix / "conda-meta").is_dir():
        raise SpecError(
            f"Python of {prefix} belongs to conda, which packs by itself: run conda-pack, put its archive where the "
            "nodes read it, and pass its URL with --pack"
        )
    home = prefix / "bin" if prefix == Path(sys.prefix) else _outside_venv()
    program = (home / f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()
    # Debian's Python has another folder than others, and within a virtual environment it does not show that.
    site = _ask([str(program), "-I", "-c", "import site; print(site.getsitepackages(['/prefix'])[0])"]).strip()
    return Interpreter(program, prefix, Path(sysconfig.get_path("stdlib")), site.removeprefix("/prefix/"))


def files(python: Interpreter) -> Iterator[PackEntry]:
    """The files of the interpreter: its program, the standard library, native libraries, and a launcher.
    Blocks on the disk for about a second."""
    stdlib = python.stdlib.relative_to(python.prefix).as_posix()
    library = _library(python.stdlib)
    for source in library:
        yield file_entry(f"{stdlib}/{source.relative_to(python.stdlib).as_posix()}", source)
    yield file_entry(f"{LIBRARIES}/{python.name}", python.program, executable=True)
    binaries = [python.program, *(file for file in library if file.suffix == ".so")]
    needed = needed_libraries(_ask(["ldd", *map(str, binaries)]))
    for name, path in sorted(needed.items()):
        yield file_entry(f"{LIBRARIES}/{name}", path)
    # A packed environment names its interpreter by an absolute path: this launcher finds it wherever the pack is
    # unpacked.
    launcher = _LAUNCHER.format(libraries=LIBRARIES, program=python.name)
    yield data_entry(f"bin/{python.name}", launcher, executable=True)
    yield link_entry("bin/python3", python.name)
    yield link_entry("bin/python", python.name)
    yield data_entry(f"{python.site}/{_STARTUP_MODULE}.py", _STARTUP)
    yield data_entry(f"{python.site}/{_STARTUP_MODULE}.pth", f"import {_STARTUP_MODULE}\n")


def needed_libraries(output: str) -> dict[str, Path]:
    """The libraries in the output of `ldd` that a node may lack, by the names under which the loader looks for them."""
    return {name: Path(path) for name, path in _DEPENDENCY.findall(output) if not _OF_THE_NODE.match(name)}


def _outside_venv() -> Path:
    """The folder of the interpreter that created this virtual environment."""
    settings = (line.partition("=") for line in Path(sys.prefix, "pyvenv.cfg").read_text().splitlines())
    return Path(next(value.strip() for key, _, value in settings if key.strip() == "home"))


def _library(stdlib: Path) -> list[Path]:
    paths: list[Path] = []
    for place, folders, names in os.walk(stdlib):
        folders[:] = [folder for folder in folders if folder not in _LEFT_OUT and not folder.startswith("config-")]
        extensions = os.path.basename(place) == "lib-dynload"
        left_out = _LEFT_OUT_EXTENSIONS if extensions else ()
        paths += [Path(place, name) for name in names if not name.startswith(left_out)]
    return sorted(path for path in paths if path.is_file())


def _ask(command: Sequence[str]) -> str:
    """The output of a small program. Raises SpecError when it fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"{command[0]} cannot be run, and a pack needs it: {error}") from error
    if result.returncode != 0 and not result.stdout:
        raise SpecError(f"{command[0]} failed, and a pack needs it: {result.stderr.strip()}")
    return result.stdout
