"""Deletes what a run has written, where no driver owns the run, and nothing else.

A directory is that of a run when it has the run's own `run.json`. Only names that the layout of a run has are deleted
in it: notes of a user, a run in a folder within, and all behind a symbolic link or a mount point stay, and are named.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sparktrain.base import formatting
from sparktrain.base.clock import Clock
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.removal import MarkedRemoval, Ownership, check_unmarked, ownership
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.run_evidence import check_direct, check_run, has_traces
from sparktrain.runs.upkeep.idle_run import check_idle
from sparktrain.runs.view import RunView
from sparktrain.runs.watcher import Observer
from sparktrain.store.base import Usage

VERSION = 1
_SHOWN = 6
"""How many names that stay are shown."""


@dataclass(frozen=True)
class Removal:
    """A run directory that is deleted, or would be."""

    directory: str
    usage: Usage
    """Of what the run has written."""
    described: str
    """What the run is, in a few words."""
    strays: tuple[str, ...]
    """The names in the directory that are not the run's, and stay; those of folders end with a slash."""
    runs: tuple[str, ...]
    """Those of them that are runs of their own."""
    removed: bool

    def line(self) -> str:
        """For people."""
        verb = "deleted" if self.removed else "would delete"
        files = formatting.count(self.usage.files, "file")
        where = formatting.plain(self.directory)
        note = f"; kept, for it is not of this run: {self._shown_strays()}" if self.strays else ""
        return f"{verb} {where}: {self.described}, {files}, {formatting.size(self.usage.size)}{note}"

    def _shown_strays(self) -> str:
        shown = [f"{formatting.plain(name)}{' (a run)' * (name in self.runs)}" for name in self.strays[:_SHOWN]]
        hidden_count = len(self.strays) - len(shown)
        return ", ".join(shown) + (f" and {hidden_count} more" if hidden_count else "")

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "directory": self.directory,
            "files": self.usage.files,
            "size": self.usage.size,
            "left": list(self.strays),
            "removed": self.removed,
        }


class Remover:
    """Deletes one run. Its methods block on the store."""

    def __init__(self, place: RunLocation, silent_s: float, clock: Clock, *, force: bool = False) -> None:
        """A driver that does not answer must have been silent for `silent_s` seconds, by the store's clock.

        `force` also deletes a run that cannot be read, so that it is unknown whether a driver owns it. It deletes
        nothing in a directory that is not that of a run.
        """
        self._force = force
        self._place = place
        self._silent_s = silent_s
        self._clock = clock

    def find(self) -> Removal:
        """What would be deleted; writes nothing that stays.

        Raises RunDirectoryError when a driver owns the run, or may own it, when another process deletes it, and for a
        directory that is not that of a run.
        """
        return self._find()[0]

    def remove(self, identity: DriverIdentity) -> Removal:
        """Delete what `find` finds. A driver that starts meanwhile is refused.

        An interrupted removal is repeated by another call. Raises as `find`, and RunDirectoryError when a driver has
        started, or another process has continued the removal.
        """
        removal, owner = self._find()
        store = self._place.store
        layout = self._place.layout
        marked = MarkedRemoval.start(store, layout.journal, identity, owner)
        last = (marked.mark, layout.spec)
        journal = f"{layout.journal.path}/"
        # The journal stays until the rest is gone: it is what a driver that starts now would read, and what refuses it.
        self._delete(lambda path: layout.owns(path) and path not in last and not path.startswith(journal))
        marked.check()
        self._delete(lambda path: layout.owns(path) and path not in last)
        # From here on a driver may put a run of this name: what it puts must stay.
        marked.check()
        # The mark goes last of all files: while it is there, no driver takes the run over.
        store.delete(layout.spec)
        store.delete(marked.mark)
        self._delete(lambda path: path.endswith("/") and layout.owns(path))
        strays = self._names(store.survey(layout.path, lambda path: path.endswith("/") and layout.owns(path)).strays)
        return replace(removal, strays=strays, runs=self._runs(strays), removed=True)

    def _find(self) -> tuple[Removal, Ownership]:
        store = self._place.store
        layout = self._place.layout
        owner = ownership(store, layout.journal)  # before the run is found to be idle
        interrupted = check_unmarked(store, layout.journal, self._silent_s)
        self._check_evidence(interrupted)
        has_started = interrupted or not self._place.has_run
        described = "the rest of a run that was being deleted" if has_started else self._described()
        survey = store.survey(layout.path, layout.owns)
        strays = self._names(survey.strays)
        return Removal(self._place.where, survey.usage, described, strays, self._runs(strays), removed=False), owner

    def _check_evidence(self, interrupted: bool) -> None:
        """Raises RunDirectoryError where nothing shows that the directory is that of a run."""
        check_direct(self._place)
        try:
            check_run(self._place)
        except FileNotFoundError as error:
            if not interrupted and not self._is_hollow():
                raise RunDirectoryError(
                    f"{self._place.where} is no run directory: its run.json is lost; put a copy back, or see "
                    "`sparktrain fsck`"
                ) from error
        except RunDirectoryError as error:
            if not has_traces(self._place):
                raise RunDirectoryError(
                    f"{self._place.where} is no run, and nothing in it is deleted, with --force or without ({error}): "
                    "correct the path, or delete the directory by other means"
                ) from error
            if not self._force:
                raise RunDirectoryError(
                    f"{error}, or pass --force to delete the run when you know that no driver runs"
                ) from error

    def _is_hollow(self) -> bool:
        """Whether a removal has left nothing but empty folders of a run, because it was interrupted at its very end."""
        survey = self._place.store.survey(self._place.layout.path, self._place.layout.owns)
        return survey.usage.files == 0 and not survey.strays

    def _described(self) -> str:
        try:
            view = Observer(self._place, self._clock).look()
        except RunDirectoryError as error:
            if not self._force and "journal/" in self._place.store.entries(self._place.layout.path):
                raise RunDirectoryError(
                    f"{error}; pass --force to delete the run when you know that no driver runs"
                ) from error
            return "a run that cannot be read"
        check_idle(view, self._place, self._silent_s)
        return _described(view)

    def _delete(self, owns: Callable[[str], bool]) -> None:
        self._place.store.delete_folder(self._place.layout.path, owns)

    def _names(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path.removeprefix(f"{self._place.layout.path}/") for path in paths)

    def _runs(self, strays: tuple[str, ...]) -> tuple[str, ...]:
        store = self._place.store
        path = self._place.layout.path
        folders = (name for name in strays[:_SHOWN] if name.endswith("/"))
        return tuple(name for name in folders if store.exists(f"{path}/{name}run.json"))


def _described(view: RunView) -> str:
    trials = formatting.count(len(view.trials), "trial")
    kind = f"a {view.kind} of {trials}" if view.kind == "sweep" else "a run"
    return f"{kind}, {view.status or 'its driver is gone'}"
