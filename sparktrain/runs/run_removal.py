"""Deletes a whole run directory that no driver owns."""

from dataclasses import dataclass
from typing import Any

from sparktrain import formatting
from sparktrain.clock import Clock
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.writer import DriverIdentity, Journal
from sparktrain.runs.idle_run import check_idle
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunView
from sparktrain.runs.watcher import Observer
from sparktrain.store.base import Usage

VERSION = 1
_LAST = ("journal/", "plans/", "run.json")
"""What is deleted last, so that a removal that was interrupted can be repeated, and no driver takes the run for new."""


@dataclass(frozen=True)
class Removal:
    """A run directory that is deleted, or would be."""

    directory: str
    usage: Usage
    described: str
    """What the run is, in a few words."""
    removed: bool

    def line(self) -> str:
        """For people."""
        verb = "deleted" if self.removed else "would delete"
        files = formatting.count(self.usage.files, "file")
        where = formatting.plain(self.directory)
        return f"{verb} {where}: {self.described}, {files}, {formatting.size(self.usage.size)}"

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "directory": self.directory,
            "files": self.usage.files,
            "size": self.usage.size,
            "removed": self.removed,
        }


class Remover:
    """Deletes one run. Its methods block on the store."""

    def __init__(self, place: RunLocation, silent_s: float, clock: Clock, *, force: bool = False) -> None:
        """A driver that does not answer must have been silent for `silent_s` seconds.

        `force` also deletes a run that cannot be read, so that it is unknown whether a driver owns it.
        """
        self._force = force
        self._place = place
        self._silent_s = silent_s
        self._clock = clock

    def find(self) -> Removal:
        """What would be deleted; writes nothing.

        Raises RunDirectoryError when a driver owns the run, or may own it.
        """
        store, layout = self._place.store, self._place.layout
        try:
            view = Observer(self._place, self._clock).look()
        except RunDirectoryError as error:
            if not self._force and "journal/" in store.entries(layout.path):
                raise RunDirectoryError(
                    f"{error}; pass --force to delete the run when you know that no driver runs"
                ) from error
            described = "a run that cannot be read"
        else:
            check_idle(view, self._place, self._clock, self._silent_s)
            described = _described(view)
        return Removal(self._place.where, store.usage(layout.path), described, removed=False)

    def remove(self, who: DriverIdentity) -> Removal:
        """Delete what `find` finds. Takes over the run first, so that a driver that starts meanwhile is noticed.

        An interrupted removal is repeated by another call. Raises as `find`, and DeposedError when a driver has
        started.
        """
        found = self.find()
        store, layout = self._place.store, self._place.layout
        try:
            journal = Journal.claim(store, layout.journal, who)[0]
        except RunDirectoryError:
            journal = None  # it cannot be read, and no driver can take it over either
        for name in store.entries(layout.path):
            if name in _LAST:
                continue
            if journal is not None:
                journal.check()
            path = f"{layout.path}/{name.rstrip('/')}"
            if name.endswith("/"):
                store.delete_folder(path)
            else:
                store.delete(path)
        store.delete_folder(layout.journal.path)
        store.delete_folder(layout.path)
        return Removal(found.directory, found.usage, found.described, removed=True)


def _described(view: RunView) -> str:
    trials = formatting.count(len(view.trials), "trial")
    kind = f"a {view.kind} of {trials}" if view.kind == "sweep" else "a run"
    return f"{kind}, {view.status or 'its driver is gone'}"
