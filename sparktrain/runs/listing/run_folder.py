"""A directory of runs, which may hold other files too, and may get more runs while it is followed."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.base.clock import Clock
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, folders_among, run_at, runs_in, store_of
from sparktrain.store.base import Store
from sparktrain.store.parallel import spread

CHECKED_AGAIN_S = 10.0
"""Time between two checks whether a folder that was no run has become one: a folder of data may have thousands."""
_CHECKS = 8


class FolderContents(Struct, frozen=True):
    """What is in a directory of runs."""

    places: tuple[RunLocation, ...]
    """The runs by name, also those that have lost their `run.json`."""
    left_out: int
    """How many files and folders are no runs."""


class RunFolder:
    """Finds the runs of a directory, and later the new ones. For one thread at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """`store` has the directory as its root."""
        self._store = store
        self._clock = clock
        self._runs: dict[str, RunLocation] = {}
        self._checked_at: dict[str, float] = {}
        """When a folder that is no run was checked."""
        self._names: dict[str, None] = {}
        """Folders that may be runs, in their order."""
        self._stray_count = 0
        """Files, and folders that no run can have the name of."""

    @classmethod
    def of(cls, directory: str, clock: Clock, timeout_s: float = LOOK_TIMEOUT_S) -> "RunFolder | RunLocation":
        """The directory of runs, or the run that it is the directory of. Blocks on the store; raises as `runs_in`.

        Of thousands of runs it checks one: `look` finds the others.
        """
        place = run_at(directory, timeout_s)
        if place is not None:
            return place
        folder = cls(store_of(directory, timeout_s), clock)
        if not folder._has_any():
            runs_in(directory, timeout_s)  # its error names what is there instead
        return folder

    @property
    def where(self) -> str:
        """The directory, for people."""
        return self._store.where()

    def look(self) -> FolderContents:
        """What the directory has now. Lists one folder, and checks folders that are new. Blocks; raises OSError."""
        self.check(self.new_names())
        return self.contents()

    def new_names(self) -> list[str]:
        """List the directory: the names of folders that may be runs, and were not checked. Blocks; raises OSError."""
        entries = self._store.entries()
        names = dict.fromkeys(folders_among(entries))
        self._stray_count = len(entries) - len(names)
        self._names = names
        self._runs = {name: place for name, place in self._runs.items() if name in names}
        now = self._clock.now()
        return [name for name in names if name not in self._runs and self._is_due(name, now)]

    def check(self, names: Sequence[str]) -> None:
        """Check whether these folders are runs. Blocks; raises OSError."""
        now = self._clock.now()
        for name, is_run in zip(names, spread(lambda name, _: self._is_run(name), names, _CHECKS), strict=True):
            if is_run:
                self._runs[name] = RunLocation(self._store, RunLayout(name))
                self._checked_at.pop(name, None)
            else:
                self._checked_at[name] = now

    def contents(self) -> FolderContents:
        """The runs that were checked, and how many other files and folders there are."""
        places = tuple(self._runs[name] for name in self._names if name in self._runs)
        return FolderContents(places, self._stray_count + sum(name in self._checked_at for name in self._names))

    def place(self, name: str) -> RunLocation | None:
        """The run in the folder of this name, as `look` has listed it."""
        return self._runs.get(name)

    def _has_any(self) -> bool:
        try:
            return any(self._is_run(name) for name in folders_among(self._store.entries()))
        except PermissionError:  # `runs_in` has the words for it
            return False

    def _is_due(self, name: str, now: float) -> bool:
        return now >= self._checked_at.get(name, float("-inf")) + CHECKED_AGAIN_S

    def _is_run(self, name: str) -> bool:
        """A run that has lost its `run.json` is shown, too: it has its journal."""
        layout = RunLayout(name)
        try:
            return self._store.exists(layout.spec) or bool(self._store.entries(layout.journal.path))
        except PermissionError:
            return False


def runs_of(directory: str, clock: Clock) -> FolderContents:
    """The run of a directory, or the runs in it. Blocks on the store; raises as `runs_in`."""
    folder = RunFolder.of(directory, clock)
    return FolderContents((folder,), 0) if isinstance(folder, RunLocation) else folder.look()
