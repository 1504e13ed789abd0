"""Makes room in a run directory: deletes files that no driver and no reader needs any more."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sparktrain.base import formatting
from sparktrain.base.clock import Clock
from sparktrain.base.ids import TrialId
from sparktrain.errors import CheckpointError, SpecError
from sparktrain.rundir import checkpoints
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.metric_log import superseded_paths
from sparktrain.runs.dataset_files import unnamed_files
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.run_evidence import check_run
from sparktrain.runs.upkeep.idle_run import check_idle
from sparktrain.runs.view import RunView, TrialView
from sparktrain.runs.watcher import Observer
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.state.records import CheckpointsDropped
from sparktrain.state.recovery import compacted
from sparktrain.store.base import Leftover

VERSION = 1
_CHECK_EVERY = 20
"""Files that are deleted between two checks for a new driver."""
_SHOWN_LINES = 40


class KeepPolicy(StrEnum):
    """Which checkpoints stay of trials that have a result. The value is the word on the command line."""

    EACH = "each"  # of each trial the newest and the best
    BEST = "best"  # the same, of the best trial alone
    NONE = "none"  # no checkpoint


def keep_of(value: str) -> KeepPolicy:
    """Which checkpoints stay. Raises SpecError."""
    if value not in list(KeepPolicy):
        raise SpecError(f"--checkpoints ({value}) must be one of {', '.join(KeepPolicy)}")
    return KeepPolicy(value)


@dataclass(frozen=True)
class Dropped:
    """A checkpoint that no longer counts."""

    trial: TrialId
    checkpoint: Checkpoint
    path: str
    """The full path of its manifest."""
    files: tuple[str, ...]
    """Paths in the store, the manifest first."""
    size: int
    """The bytes of its files."""


@dataclass(frozen=True)
class Orphan:
    """A file that belongs to no checkpoint and to no dataset, or reports that another file has too."""

    file: str
    """Its path in the store."""
    path: str
    """Its full path."""
    size: int


@dataclass(frozen=True)
class Tidied:
    """What was deleted, or would be."""

    name: str
    dropped: tuple[Dropped, ...]
    orphans: tuple[Orphan, ...]
    unpublished: tuple[Leftover, ...]
    records: tuple[int, int]
    """Records of the journal, before and after."""
    dry: bool
    corrupt: tuple[str, ...] = ()
    """The checkpoints that stay and have missing or truncated files, one message each."""

    @property
    def code(self) -> int:
        """The exit code of `sparktrain gc`."""
        return 7 if self.corrupt else 0

    @property
    def size(self) -> int:
        """Bytes of all files."""
        sizes = [drop.size for drop in self.dropped]
        return sum([*sizes, *(file.size for file in self.orphans), *(file.size for file in self.unpublished)])

    def lines(self) -> list[str]:
        """For people: a summary, then each file."""
        verb = "would delete" if self.dry else "deleted"
        counts = [
            (len(self.dropped), "checkpoint"),
            (len(self.orphans), "orphaned file"),
            (len(self.unpublished), "unpublished file"),
        ]
        shown = [formatting.count(count, noun) for count, noun in counts if count]
        summary = f"{verb} {', '.join(shown)}: {formatting.size(self.size)}" if shown else "there is nothing to delete"
        before, after = self.records
        shorter = f"; the journal has {after} records in place of {before}" if after < before else ""
        file_lines = list(self._item_lines())
        overflow = [f"  and {len(file_lines) - _SHOWN_LINES} more"] if len(file_lines) > _SHOWN_LINES else []
        corrupt = [f"{formatting.plain(problem)}; `sparktrain fsck` explains it" for problem in self.corrupt]
        return [f"{formatting.plain(self.name)}: {summary}{shorter}", *file_lines[:_SHOWN_LINES], *overflow, *corrupt]

    def _item_lines(self) -> Iterator[str]:
        for dropped in self.dropped:
            size = formatting.size(dropped.size)
            yield f"  trial {dropped.trial}, checkpoint of step {dropped.checkpoint.step}: {size}"
        for orphan in self.orphans:
            yield f"  {formatting.plain(orphan.path)}: {formatting.size(orphan.size)}"
        for leftover in self.unpublished:
            yield f"  {formatting.plain(leftover.name)}: {formatting.size(leftover.size)}"

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "version": VERSION,
            "name": self.name,
            "dry_run": self.dry,
            "checkpoints": [
                {"trial": drop.trial, "step": drop.checkpoint.step, "path": drop.path, "size": drop.size}
                for drop in self.dropped
            ],
            "orphans": [{"path": orphan.path, "size": orphan.size} for orphan in self.orphans],
            "unpublished": [{"path": leftover.name, "size": leftover.size} for leftover in self.unpublished],
            "size": self.size,
            "records": {"before": self.records[0], "after": self.records[1]},
            "corrupt": list(self.corrupt),
        }


class Tidier:
    """Tidies up one run that no driver owns. Its methods block on the store."""

    def __init__(self, place: RunLocation, keep: KeepPolicy, older_than_s: float, clock: Clock) -> None:
        """Orphaned files are deleted when they are older than `older_than_s`, by the store's clock."""
        self._place = place
        self._keep = keep
        self._older_than_s = older_than_s
        self._clock = clock
        self._observer = Observer(place, clock)

    def find(self) -> Tidied:
        """What would be deleted; writes nothing that stays.

        Raises RunDirectoryError when a driver owns the run, or may own it, SpecError when no trial can be the best,
        and as `Observer.look`.
        """
        store = self._place.store
        layout = self._place.layout
        check_run(self._place)
        view = self._observer.look()
        check_idle(view, self._place, self._older_than_s)
        dropped = tuple(drop for trial in view.trials for drop in self._dropped(trial, view))
        records = self._observer.records
        return Tidied(
            name=view.name,
            dropped=dropped,
            orphans=tuple(self._orphans(view, dropped)),
            unpublished=tuple(store.unpublished(layout.path, self._older_than_s, layout.owns)),
            records=(len(records), len(compacted([*records, *_records(dropped)]))),
            dry=True,
        )

    def tidy(self, identity: DriverIdentity) -> Tidied:
        """Delete what `find` finds. Takes over the run first, so that a driver that starts meanwhile is noticed.

        Checks afterwards that the files of all checkpoints that stay exist with their sizes. Raises as `find`, and
        DeposedError when a driver has started: what was deleted until then was not needed.
        """
        self.find()  # a wrong call takes nothing over
        journal, _ = Journal.claim(self._place.store, self._place.layout.journal, identity)
        self._observer = Observer(self._place, self._clock)
        # Once more, with the run owned: a driver may have written since the first look, and would need what it found.
        tidied = self.find()
        dropped = _records(tidied.dropped)
        if dropped:
            journal.append(dropped)
        else:
            journal.settle()
        kept_checkpoints = [checkpoint for trial in self._observer.look().trials for checkpoint in trial.checkpoints]
        self._delete(tidied, kept_checkpoints, journal)
        journal.compact(compacted(self._observer.records))
        return replace(tidied, dry=False, corrupt=tuple(self._corrupt(kept_checkpoints)))

    def _delete(self, tidied: Tidied, kept_checkpoints: Sequence[Checkpoint], journal: Journal) -> None:
        """Delete what was found, except files that a kept checkpoint names, whatever else is wrong."""
        store = self._place.store
        layout = self._place.layout
        needed = set[str]()
        for checkpoint in kept_checkpoints:
            with suppress(CheckpointError):  # one that cannot be read names nothing
                needed.update(checkpoints.files_of(checkpoint, checkpoints.manifest_of(store, checkpoint)))
        files = [file for target in tidied.dropped for file in target.files] + [
            target.file for target in tidied.orphans
        ]
        own_files = (file for file in files if file not in needed and layout.owns(file))
        for number, file in enumerate(file for file in own_files if store.way_out(file, layout.path) is None):
            if number % _CHECK_EVERY == 0:
                journal.check()
            store.delete(file)
        for leftover in tidied.unpublished:
            store.discard_unpublished(leftover)

    def _corrupt(self, kept_checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
        """What is wrong with checkpoints that stay, by the sizes of their files."""
        for checkpoint in kept_checkpoints:
            try:
                manifest = checkpoints.manifest_of(self._place.store, checkpoint)
                for _ in checkpoints.verified(self._place.store, checkpoint, manifest, fast=True):
                    continue
            except CheckpointError as error:
                yield str(error)

    def _dropped(self, trial: TrialView, view: RunView) -> Iterator[Dropped]:
        """The checkpoints of a trial with a result, except those that stay."""
        if not trial.result.status.observed:
            return  # a driver that resumes the run starts there
        stay = self._staying(trial, view)
        store = self._place.store
        path = self._place.layout.path
        for checkpoint in trial.checkpoints:
            if checkpoint in stay or store.way_out(checkpoint.manifest, path) is not None:
                continue
            files = [checkpoint.manifest]
            size = 0
            try:
                manifest = checkpoints.manifest_of(store, checkpoint)
                files = checkpoints.files_of(checkpoint, manifest)
                size = sum(shard.size for shard in manifest.shards)
            except CheckpointError:
                pass  # its shards are orphans from now on
            yield Dropped(trial.result.id, checkpoint, store.where(checkpoint.manifest), tuple(files), size)

    def _staying(self, trial: TrialView, view: RunView) -> list[Checkpoint]:
        if self._keep is KeepPolicy.NONE:
            return []
        if self._keep is KeepPolicy.BEST:
            best = view.results[0] if len(view.results) == 1 else view.best
            if view.spec.metric is None and len(view.results) > 1:
                raise SpecError(f"run {view.name} has no metric, so that no trial is its best: pass --checkpoints each")
            if best is None or best.id != trial.result.id:
                return []
        history = CheckpointHistory(list(trial.checkpoints))
        return [checkpoint for checkpoint in (history.newest, history.best) if checkpoint is not None]

    def _orphans(self, view: RunView, dropped: Sequence[Dropped]) -> Iterator[Orphan]:
        store = self._place.store
        layout = self._place.layout
        named = {file for drop in dropped for file in drop.files}
        borrowed = [checkpoint for trial in view.trials if trial.result.exploits for checkpoint in trial.checkpoints]
        for trial in view.trials:
            prefix = f"{layout.checkpoints(trial.result.id)}/"  # other trials may continue from what it wrote
            lent = [checkpoint for checkpoint in borrowed if checkpoint.manifest.startswith(prefix)]
            leftovers = checkpoints.left_over(store, layout, trial.result.id, [*trial.checkpoints, *lent])
            yield from self._old([file for file in leftovers if file not in named])
        yield from self._old([*unnamed_files(store, layout), *superseded_paths(store, layout.reports)])

    def _old(self, files: Sequence[str]) -> Iterator[Orphan]:
        """Those of the files that the run has written itself, and long enough ago."""
        store = self._place.store
        layout = self._place.layout
        latest = store.now(layout.path) - self._older_than_s if files else 0.0
        for file in files:
            with suppress(FileNotFoundError):
                info = store.stat(file)
                if info.modified <= latest and layout.owns(file) and store.way_out(file, layout.path) is None:
                    yield Orphan(file, store.where(file), info.size)


def _records(dropped: Sequence[Dropped]) -> list[CheckpointsDropped]:
    """The records for the journal, one for each trial."""
    manifests: dict[TrialId, list[str]] = {}
    for drop in dropped:
        manifests.setdefault(drop.trial, []).append(drop.checkpoint.manifest)
    return [
        CheckpointsDropped(trial=trial, manifests=tuple(paths), reason="deleted to make room")
        for trial, paths in manifests.items()
    ]
