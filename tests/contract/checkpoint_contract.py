"""The contract of checkpoints on every store: a test class for a store inherits `CheckpointContract`."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.base.ids import Generation
from sparktrain.errors import CheckpointError
from sparktrain.rundir.checkpoints import THREADS, collect_garbage, delete, fetch, left_over, listed, write
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.store.base import Store
from tests.unit.rundir.snapshots import (
    NAMES,
    TRIAL,
    content,
    draft,
    loaded,
    part_content,
    put_parts,
    quick_folder,
    resumed,
)
from tests.unit.store.gated import Crash, FailAt, GatedStore, fault

FILES = len(NAMES)
PART_FILES = len(part_content(1, 1, 0)) + len(part_content(1, 1, 1))
"""Of two members."""
BREAKS = [(when, error) for when in ("before", "after") for error in (Crash(), fault())]
TURNS = 100
"""More operations than any of these cases has."""


def named(value: Any) -> str:
    return "crash" if isinstance(value, Crash) else "fault" if isinstance(value, OSError) else str(value)


class Case:
    """A separate run in the store, and a gate that breaks one of its operations."""

    def __init__(self, store: Store, local: Path, gate: FailAt) -> None:
        self.store = store
        self.local = local / f"case-{id(gate)}"
        self.gate = gate
        self.gated = GatedStore(store, gate)
        self.layout = RunLayout(f"run-{id(gate)}")
        self.trial = CheckpointHistory()
        self.local.mkdir()

    def put(self, step: int, generation: int = 1, **fields: Any) -> Checkpoint:
        return write(self.store, self.layout, draft(self.local, step, generation, **fields), threads=1)

    def acknowledged(self, step: int, generation: int = 1) -> Checkpoint:
        """An acknowledged checkpoint."""
        parent = self.trial.newest.digest if self.trial.newest else ""
        self.trial.acknowledge(self.put(step, generation, parent=parent))
        assert self.trial.newest is not None
        return self.trial.newest

    def breaks(self, work: Callable[[Store], Any]) -> Any:
        """The result of `work`; None when the gate has broken it."""
        try:
            return work(self.gated)
        except CheckpointError:
            raise  # a failure of the store is not corruption
        except (Crash, OSError):
            if not self.gate.broke:
                raise
            return None

    def paths(self) -> list[str]:
        return self.store.list(self.layout.path)

    def all_visible_are_whole(self) -> None:
        for each in listed(self.store, self.layout, TRIAL):
            digest = hashlib.sha256(self.store.read(each.manifest)).hexdigest()
            found = loaded(self.store, Checkpoint(each.generation, each.step, each.manifest, digest), self.local)
            assert found == content(each.generation, each.step)

    def resumes_from(self, checkpoint: Checkpoint) -> None:
        found = resumed(self.store, self.trial, self.local)
        assert found == (checkpoint, content(checkpoint.generation, checkpoint.step))
        assert self.trial.corrupt == []


def cases(store: Store, local: Path, when: str, error: BaseException, stride: int) -> Iterator[Case]:
    """A case for each operation to break, and a last one in which nothing breaks."""
    for index in range(0, TURNS, stride):
        case = Case(store, local, FailAt(index, when, error))
        yield case
        if not case.gate.broke:
            return
    raise AssertionError("there is no end of operations")


class CheckpointContract:
    """The fixture `store` gives each test an empty store, and `local` a folder on the local disk."""

    stride = 1
    """The step between broken operations: 1, or more where operations are slow."""
    breaks = BREAKS
    """How operations break: fewer where operations are slow."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "threads" in metafunc.fixturenames:
            values = [(1, *each) for each in self.breaks] + [(THREADS, *each) for each in self.breaks[:2]]
            metafunc.parametrize(("threads", "when", "error"), values, ids=named)
        elif "when" in metafunc.fixturenames:
            metafunc.parametrize(("when", "error"), self.breaks, ids=named)

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("a test class of a store must have a fixture `store`")

    @pytest.fixture
    def local(self) -> Iterator[Path]:
        with quick_folder() as folder:
            yield folder

    def test_a_write_may_break_anywhere(
        self, store: Store, local: Path, when: str, error: BaseException, threads: int
    ) -> None:
        """A restart then costs one interval at most, and the next generation cleans up and continues."""
        for case in cases(store, local, when, error, self.stride):
            case.acknowledged(1)
            before = case.acknowledged(2)
            wanted = draft(case.local, 3, parent=before.digest, writer="agent-1")
            written = case.breaks(lambda gated, c=case, w=wanted: write(gated, c.layout, w, threads=threads))
            case.all_visible_are_whole()
            if written is not None:
                case.trial.acknowledge(written)
            case.resumes_from(written or before)
            if written is None:
                late = write(store, case.layout, wanted, threads=threads)
                assert loaded(store, late, case.local) == content(1, 3)
                case.acknowledged(3, generation=2)
            collect_garbage(store, case.layout, TRIAL, case.trial.retained, Generation(2))
            case.all_visible_are_whole()
            assert len(case.paths()) == 2 * (FILES + 1)
        assert case.gate.seen == 4 * FILES + 2  # create, write, publish, read back; then the manifest and its read-back

    def test_a_fetch_may_break_anywhere(
        self, store: Store, local: Path, when: str, error: BaseException, threads: int
    ) -> None:
        for case in cases(store, local, when, error, self.stride):
            checkpoint, first = case.acknowledged(1), case.local / "first"
            case.breaks(lambda gated, c=checkpoint, to=first: fetch(gated, c, to, threads=threads))
            assert first.exists() is not case.gate.broke, "what is there is whole"
            case.resumes_from(checkpoint)
        assert case.gate.seen == 1 + FILES

    def test_a_fetch_with_cached_files_may_break_anywhere(
        self, store: Store, local: Path, when: str, error: BaseException
    ) -> None:
        for case in cases(store, local, when, error, self.stride):
            checkpoint, cache, first = case.acknowledged(1), case.local / "cache", case.local / "first"
            fetch(store, checkpoint, cache)
            (cache / NAMES[0]).write_bytes(b"of something else")
            (cache / NAMES[1]).unlink()
            case.breaks(lambda gated, c=checkpoint, to=first, at=cache: fetch(gated, c, to, at, threads=1))
            assert first.exists() is not case.gate.broke
            assert loaded(store, checkpoint, case.local, cache) == content(1, 1)
        assert case.gate.seen == 2

    def test_a_delete_may_break_anywhere(self, store: Store, local: Path, when: str, error: BaseException) -> None:
        for case in cases(store, local, when, error, self.stride):
            doomed, *kept = [case.put(step) for step in (1, 2, 3)]
            case.trial.retained = kept
            case.breaks(lambda gated, c=doomed: delete(gated, c))
            case.all_visible_are_whole()
            case.resumes_from(kept[-1])
            delete(store, doomed)
            assert len(case.paths()) == 2 * (FILES + 1)
            case.all_visible_are_whole()
        assert case.gate.seen == 2 + FILES

    def test_garbage_collection_may_break_anywhere(
        self, store: Store, local: Path, when: str, error: BaseException
    ) -> None:
        """It finds kept, unacknowledged and partial checkpoints of an old generation."""
        for case in cases(store, local, when, error, self.stride):
            base = case.acknowledged(1)
            case.put(2, writer="e" * 32)
            for name in NAMES:
                store.put_if_absent(f"{case.layout.generation(TRIAL, Generation(1)).data(3, 'c' * 32)}.{name}", b"x")
            newest = case.acknowledged(2, generation=2)
            kept = tuple(case.trial.retained)
            case.breaks(lambda gated, c=case, k=kept: collect_garbage(gated, c.layout, TRIAL, k, Generation(2)))
            case.all_visible_are_whole()
            case.resumes_from(newest)
            collect_garbage(store, case.layout, TRIAL, kept, Generation(2))
            assert len(case.paths()) == 2 * (FILES + 1)
            assert loaded(store, base, case.local) == content(1, 1)
        assert case.gate.seen == 1 + 2 * (1 + 2 * FILES), (
            "a look at what leads out of the folder, and a deletion, for each"
        )

    def test_a_write_of_all_members_may_break_anywhere(
        self, store: Store, local: Path, when: str, error: BaseException
    ) -> None:
        """Nothing counts before the manifest names the parts of all; what is left is found, and deleted."""
        for case in cases(store, local, when, error, max(self.stride, 3)):
            before = case.acknowledged(1)
            written = case.breaks(lambda gated, c=case: put_parts(gated, c.layout, c.local, 2, size=2))
            shown = listed(store, case.layout, TRIAL)
            assert [each.step for each in shown] in ([1], [1, 2])
            if written is None:
                case.resumes_from(before)
            else:
                case.trial.acknowledge(written)
                whole = part_content(1, 2, 0) | part_content(1, 2, 1)
                assert resumed(store, case.trial, case.local) == (written, whole)
            for path in left_over(store, case.layout, TRIAL, case.trial.retained):
                store.delete(path)
            assert len(case.paths()) == FILES + 1 + (PART_FILES + 1 if written is not None else 0)
            if written is not None:
                delete(store, written)
                assert len(case.paths()) == FILES + 1
        assert case.gate.seen == 4 * PART_FILES + 2

    def test_leftovers_belong_to_no_kept_checkpoint(self, store: Store, local: Path) -> None:
        case = Case(store, local, FailAt(0, "never", Crash()))
        kept = [case.acknowledged(1), case.acknowledged(2), case.acknowledged(2, generation=2)]
        late, place = case.put(3, writer="e" * 32), case.layout.generation(TRIAL, Generation(1))
        for step in (2, 4):
            store.put_if_absent(f"{place.data(step, 'crashed')}.{NAMES[0]}", b"x")
        left = left_over(store, case.layout, TRIAL, kept)
        assert left[0] == late.manifest
        for path in left:
            store.delete(path)
        assert [loaded(store, each, case.local) for each in kept] == [content(1, 1), content(1, 2), content(2, 2)]
        assert len(case.paths()) == 3 * (FILES + 1), "and nothing else is left"

    def test_a_corrupt_checkpoint_is_replaced_by_the_previous_one(self, store: Store, local: Path) -> None:
        case = Case(store, local, FailAt(0, "never", Crash()))
        checkpoints = [case.acknowledged(step) for step in (1, 2)]
        for newest, before in zip(reversed(checkpoints), [checkpoints[0], None], strict=True):
            folder = f"{newest.manifest.rpartition('/')[0]}/data"
            path = next(each for each in store.list(folder) if f"/{newest.step:08d}-" in each)
            damaged = bytes([store.read(path)[0] ^ 1]) + store.read(path)[1:]
            store.delete(path)
            store.put_if_absent(path, damaged)
            found, files = resumed(store, case.trial, case.local)
            assert (found, files) == (before, content(1, before.step) if before else {})
        assert case.trial.all_corrupt, "and step 0 is not silently next"
