"""A directory of runs, which may hold other files too, and may get more runs while it is followed."""

from msgspec import Struct

from sparktrain.clock import Clock
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, folders_among, runs_in
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

    @classmethod
    def of(cls, directory: str, clock: Clock, timeout_s: float = LOOK_TIMEOUT_S) -> "RunFolder | RunLocation":
        """The directory of runs, or the run that it is the directory of. Blocks on the store; raises as `runs_in`."""
        places, alone = runs_in(directory, timeout_s)
        if alone:
            return places[0]
        folder = cls(places[0].store, clock)
        folder._runs = {place.layout.path: place for place in places}
        return folder

    @property
    def where(self) -> str:
        """The directory, for people."""
        return self._store.where()

    def look(self) -> FolderContents:
        """What the directory has now. Lists one folder, and checks folders that are new. Blocks; raises OSError."""
        entries = self._store.entries()
        names = folders_among(entries)
        self._runs = {name: place for name, place in self._runs.items() if name in set(names)}
        now = self._clock.now()
        new_names = [name for name in names if name not in self._runs and self._is_due(name, now)]
        for name, is_run in zip(new_names, spread(lambda name, _: self._is_run(name), new_names, _CHECKS), strict=True):
            if is_run:
                self._runs[name] = RunLocation(self._store, RunLayout(name))
            else:
                self._checked_at[name] = now
        places = tuple(self._runs[name] for name in names if name in self._runs)
        return FolderContents(places, len(entries) - len(places))

    def place(self, name: str) -> RunLocation | None:
        """The run in the folder of this name, as `look` has listed it."""
        return self._runs.get(name)

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
