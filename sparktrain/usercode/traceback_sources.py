"""Adds to the archive what a traceback on an executor needs to name the user's own files."""

import itertools
import linecache
import os
import sys
import zipfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from sparktrain.base.ipython_shell import ipython_shell
from sparktrain.protocol.code_origins import MOST_LEFT, NAME, Origins, Source, encode
from sparktrain.usercode.imports import NEVER_LOCAL, find_local, is_local
from sparktrain.usercode.module_zip import EPOCH

MOST_LISTED = 1000
"""Entries of a folder that are looked at: a folder with more is no folder of modules."""
MAX_SOURCE_CHARS = 2**20
"""Limit of all sources together. Longer ones are not sent, and tracebacks lack their lines."""


def with_origins(archive: bytes, function: bytes, root: Path | None) -> bytes:
    """`archive`, which may be empty, with the origins of its modules and of the pickled or named `function`.

    `root` is the folder that a target of the command line was imported from. Reads no file of the user's but the main
    script, and lists the folders of imports.
    """
    buffer = BytesIO(archive)
    # Appended, because the archive of equal modules is compressed once for a process, and origins change with each
    # call.
    with zipfile.ZipFile(buffer, "a") as opened:
        tops = dict.fromkeys(name.partition("/")[0] for name in opened.namelist())
        places = {top: str(place) for top in tops if (place := _place(top, root)) is not None}
        entry = zipfile.ZipInfo(NAME, EPOCH)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o644 << 16
        unsent_names = tuple(sorted(_local_names(root) - {top.removesuffix(".py") for top in tops}))[:MOST_LEFT]
        opened.writestr(entry, encode(Origins(_folder(), places, _sources(function), unsent_names)))
    return buffer.getvalue()


def _folder() -> str:
    """The working directory; empty where it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _local_names(root: Path | None) -> set[str]:
    """The modules and packages in the user's own folders of imports, by their names there."""
    names: set[str] = set()
    for folder in {*(Path(name) for name in sys.path), *([root] if root is not None else [])}:
        if not is_local(str(folder)):
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in itertools.islice(entries, MOST_LISTED):
                name = entry.name.removesuffix(".py")
                if name.isidentifier() and name not in NEVER_LOCAL and (name != entry.name or _is_package(entry.path)):
                    names.add(name)
    return names


def _is_package(folder: str) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        return any(entry.name.endswith(".py") for entry in itertools.islice(entries, MOST_LISTED // 10))
    return False


def _place(top: str, root: Path | None) -> Path | None:
    if root is not None and (root / top).exists():
        return root / top
    return find_local(top.removesuffix(".py"))


def _sources(function: bytes) -> dict[str, Source]:
    """The main script and notebook cells with code in the pickle."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is not None:
        linecache.getlines(main)
    sources = {}
    budget = MAX_SOURCE_CHARS
    for name in list(linecache.cache):
        mine = name == main or _cell(name) is not None
        if mine and name.encode() in function:
            text = "".join(linecache.getlines(name))
            budget -= len(text)
            if text and budget >= 0:
                sources[name] = Source(_cell(name) or name, text)
    return sources


def _cell(name: str) -> str | None:
    """`Cell In[3]`, as IPython calls it; None for anything else."""
    shell = ipython_shell()
    label_parts = shell.compile.format_code_name(name) if shell is not None else None
    return " ".join(label_parts) if label_parts else None
