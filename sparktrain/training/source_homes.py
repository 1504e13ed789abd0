"""Maps the files that a member runs to the user's own files: for tracebacks and hints."""

import linecache
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import TracebackException

from msgspec import Struct

from sparktrain.errors import ProtocolError
from sparktrain.protocol import code_origins
from sparktrain.protocol.code_origins import Origins

_OF_SCRIPT = re.compile(r"Can't get attribute '(\w+)' on <module '__main__'")
"""What pickle raises for an object with a class that `__main__` lacks."""


class Homes(Struct, frozen=True):
    """The mapping from files in a member's process to those of the user."""

    modules: str = ""
    """The folder on this host with the unpacked modules of the user."""
    origins: Origins = Origins("")

    def of(self, file: str) -> str:
        """The name of `file` for the user: relative to the driver's working directory where it lies below."""
        if (source := self.origins.sources.get(file)) is not None:
            return self._below(source.shown)
        top, _, subpath = file.removeprefix(f"{self.modules}{os.sep}").partition(os.sep)
        if not self.modules or not file.startswith(f"{self.modules}{os.sep}") or top not in self.origins.places:
            return self._below(file)
        return self._below(os.path.join(self.origins.places[top], subpath) if subpath else self.origins.places[top])

    def rename(self, trace: TracebackException) -> None:
        """Change the file names in `trace`, its causes and its groups to the user's own."""
        todo = [trace]
        visited_ids = set()
        while todo:
            exception = todo.pop()
            if id(exception) in visited_ids:
                continue
            visited_ids.add(id(exception))
            for frame in exception.stack:
                frame.filename = self.of(frame.filename)
            linked = (exception.__cause__, exception.__context__, *(exception.exceptions or ()))
            todo += [link for link in linked if link is not None]

    def hint(self, error: BaseException) -> str:
        """Advice on a path, module or name of the script that was not found; empty for any other error."""
        if isinstance(error, ModuleNotFoundError):
            return self._hint_on_module(error)
        if isinstance(error, AttributeError) and (match := _OF_SCRIPT.search(str(error))) is not None:
            return (
                f" (of the script, a trial has what the training function uses: name {match[1]} in the function, or "
                "move it to a module beside the script)"
            )
        name = error.filename if isinstance(error, FileNotFoundError) else None
        folder = self.origins.folder
        if not folder or not isinstance(name, str) or not name or os.path.isabs(name) or "://" in name:
            return ""
        path = os.path.normpath(os.path.join(folder, name))
        exists = os.path.exists(path)
        step = f"write {path!r}" if exists else f"write an absolute path that executors can read, as {path!r} would be"
        return f" (a trial works in a folder of its own: {step})"

    def _hint_on_module(self, error: ModuleNotFoundError) -> str:
        top = (error.name or "").partition(".")[0]
        if top not in self.origins.left:
            return ""
        module = next((name for name in _imported_by_name(error) if name.partition(".")[0] == top), error.name)
        return (
            f" ({top} lies beside your code, and was not sent, as only modules that code names travel: write "
            f"`import {module}` in the function)"
        )

    def _below(self, file: str) -> str:
        folder = self.origins.folder
        return file.removeprefix(f"{folder}{os.sep}") if folder else file


def _imported_by_name(error: BaseException) -> Iterator[str]:
    """The absolute names of modules that functions of a traceback import by a name which only their run knows."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = frame.f_locals.get("name")
        if frame.f_code.co_name == "import_module" and isinstance(name, str):
            yield name


def find(folders: Sequence[str]) -> Homes:
    """Read the mapping that came with the modules in `folders`; gives `linecache` the sources of the driver."""
    for folder in folders:
        try:
            origins = code_origins.decode((Path(folder) / code_origins.NAME).read_bytes())
        except (OSError, ProtocolError):  # without it a traceback has other file names
            continue
        for name, source in origins.sources.items():
            lines = source.text.splitlines(keepends=True)
            # Without a time: linecache drops an entry with one when it finds no such file, as on an executor.
            linecache.cache[name] = (len(source.text), None, lines, name)
        return Homes(folder, origins)
    return Homes()
