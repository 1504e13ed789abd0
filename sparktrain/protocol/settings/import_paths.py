"""The folders that a script has added to `sys.path`, which its imports by computed names need in a trial."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path


def added() -> list[str]:
    """The entries of `sys.path` that no fresh process of this script has, in their order. Reads `.pth` files."""
    fresh = set(_fresh())
    homes = tuple(f"{home}{os.sep}" for home in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    return [
        entry
        for entry in dict.fromkeys(map(str, sys.path))
        if os.path.isabs(entry)
        and os.path.normpath(entry) not in fresh
        and not entry.startswith(homes)
        # The folder in which each Spark session of this process keeps the files that executors have from it.
        and f"{os.sep}userFiles-" not in entry
    ]


def _fresh() -> Iterator[str]:
    """What Python itself puts there: the folder of the script, PYTHONPATH, and what is installed."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    with suppress(OSError):  # the working directory was deleted
        yield os.getcwd()
        if main is not None:
            yield os.path.dirname(os.path.abspath(main))
            yield os.path.dirname(os.path.realpath(main))
    yield from map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    yield from _installed()


@cache
def _installed() -> tuple[str, ...]:
    folders = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    return tuple(map(os.path.normpath, [*folders, *_linked(folders)]))


def _linked(folders: Iterable[str]) -> Iterator[str]:
    """The folders that `.pth` files name, such as those of editable installations."""
    for folder in folders:
        with suppress(OSError, UnicodeDecodeError):
            for path in Path(folder).glob("*.pth"):
                for line in path.read_text().splitlines():
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield os.path.join(folder, line.strip())


def add(entries: Iterable[str]) -> None:
    """Add those that this host has to `sys.path`, behind the modules that have come with the function."""
    # Behind them: a folder of this host may hold another version of what the driver has sent.
    place = next((index for index, entry in enumerate(sys.path) if entry.startswith(sys.base_prefix)), len(sys.path))
    sys.path[place:place] = [entry for entry in entries if entry not in sys.path and os.path.exists(entry)]
