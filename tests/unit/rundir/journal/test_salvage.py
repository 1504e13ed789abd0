"""A corrupt journal is recognized and repaired: a driver resumes with everything that can be kept."""

import pytest

from sparktrain.base.ids import Generation, RunId, TrialId
from sparktrain.errors import DeposedError, JournalCorruptError
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.journal.salvage import SalvageReport, fsck, repair
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.events import RunStarted
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    DriverStarted,
    GangFormed,
    RunEnded,
    TrialConcluded,
    TrialsAdded,
)
from sparktrain.state.recovery import recovered
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import TrialStatus
from tests.support.limits import run_limits
from tests.unit.rundir.journal.journals import FOLDER, LAYOUT, WHO, claim, facts
from tests.unit.store.gated import Crash, FailAt, GatedStore, MemoryStore, fault

RUN = RunLayout("run")
BEGAN = DriverStarted(plan="p", at=1.0)


def added(*values: int) -> TrialsAdded:
    cases = tuple({"value": value} for value in values)
    return TrialsAdded(cases=cases, exhausted=False, asked=len(cases), observed=0)


def formed(trial: int, generation: int = 1) -> GangFormed:
    return GangFormed(trial=TrialId(trial), generation=Generation(generation), hosts=("host-1",))


def acknowledged(trial: int, step: int, generation: int = 1) -> CheckpointAcknowledged:
    checkpoint = Checkpoint(Generation(generation), step, f"manifest-{step}", "ab")
    return CheckpointAcknowledged(trial=TrialId(trial), checkpoint=checkpoint)


def concluded(trial: int, status: TrialStatus = TrialStatus.SUCCEEDED) -> TrialConcluded:
    return TrialConcluded(trial=TrialId(trial), status=status, metrics={"loss": 0.5})


BATCHES: tuple[tuple[AnyRecord, ...], ...] = (
    (BEGAN, added(10, 11, 12)),
    (formed(0), formed(1)),
    (acknowledged(0, 5), concluded(1)),
    (formed(0, 2), acknowledged(0, 9, 2)),
    (added(13), formed(3), concluded(3), formed(2)),
    (concluded(0),),
)
RECORDS = [record for batch in BATCHES for record in batch]


def corrupted(*names: str, snapshots: bool = False) -> MemoryStore:
    """A journal in which the first record of each of these files is garbled."""
    store, so_far = MemoryStore(), []
    journal = claim(store)
    for batch in BATCHES:
        journal.append(batch)
        so_far += batch
        if snapshots and len(so_far) in (4, 8):
            journal.compact(so_far)
    for name in names:
        path = f"{FOLDER}/{name}"
        lines = store.files[path].splitlines(keepends=True)
        store.files[path] = b"".join([lines[0], b"xxxxxxxx\n", *lines[2:]])
    return store


def batch(number: int) -> str:
    return f"batch-0001-{number:08d}"


def resumed(records: tuple[AnyRecord, ...]) -> Sweep:
    return recovered(RunStarted(0.0, RunId("run"), run_limits(), records, BEGAN))


def statuses(records: tuple[AnyRecord, ...]) -> list[str]:
    return [trial.status.value for trial in resumed(records).trials.values()]


def test_a_whole_journal_is_left_alone() -> None:
    store = corrupted()
    before = dict(store.files)
    assert repair(store, RUN, WHO) == fsck(store, RUN) == SalvageReport((), (), len(RECORDS), ())
    assert fsck(store, RUN).is_intact
    assert store.files == before
    assert fsck(MemoryStore(), RUN) == SalvageReport((), (), 0, ())


def test_unusual_files_are_reported() -> None:
    store = MemoryStore()
    old = claim(store)
    old.append(facts(1))
    claim(store).settle()
    with pytest.raises(DeposedError):
        old.append(facts(2))
    store.files[f"{FOLDER}/notes.txt"] = b""
    del store.files[LAYOUT.term(1)]
    report = fsck(store, RUN)
    assert report.is_intact
    assert report.notes == (
        "memory:/run/journal/notes.txt is not a file of a journal, and is left alone",
        "memory:/run/journal/term-0001 is missing: the driver of that term is unknown",
        "memory:/run/journal/batch-0001-00000002 does not count: its driver had been deposed",
    )


def test_lost_records_are_reported_and_nothing_is_written() -> None:
    store = corrupted(batch(2), batch(5))
    before = dict(store.files)
    report = fsck(store, RUN)
    assert store.files == before
    assert report.problems == (
        "record 1 of memory:/run/journal/batch-0001-00000002 does not match its checksum; 2 of its records are lost",
        "memory:/run/journal/batch-0001-00000005: record 1 does not match its checksum",
    )
    # The two of batch 1, the second of batch 2, batches 3 and 4, the last of batch 5, and batch 6.
    assert report.record_count == 2 + 1 + 2 + 2 + 1 + 1
    assert report.again == (2, 3)


def test_the_run_continues_with_the_kept_records() -> None:
    store = corrupted(batch(3))
    with pytest.raises(JournalCorruptError):
        claim(store)
    report = repair(store, RUN, WHO)
    journal, opened = Journal.claim(store, LAYOUT, WHO)
    assert (journal.term, len(opened.records)) == (3, report.record_count)
    assert opened.records == (
        *RECORDS[:4],
        concluded(1),
        formed(0, 2),
        acknowledged(0, 9, 2),
        formed(2),
        concluded(0),
    )
    assert statuses(opened.records) == ["succeeded", "succeeded", "queued"]
    journal.append((RunEnded(ending="complete"),))
    assert fsck(store, RUN).is_intact


def test_a_trial_that_was_added_after_the_corruption_is_not_kept() -> None:
    store = corrupted(batch(4))
    for path in (RUN.trial(TrialId(3)), RUN.trial(TrialId(0))):
        store.files[f"{path}/generation-1/rank-0/log.txt"] = b""
    report = repair(store, RUN, WHO)
    assert report.again == (2, 3)
    assert report.notes == (
        "folder memory:/run/trials/0003 belongs to a trial that cannot be kept: move it away before you resume "
        "the run, or it conflicts with the next trial of this number",
    )
    assert len(resumed(read(store, LAYOUT).records).trials) == 3


def test_no_generation_is_reused() -> None:
    """The records of the third generation are lost, but it has left files."""
    store = corrupted(batch(3), batch(6))
    for name in (
        "generation-1/rank-0/log.txt",
        "generation-3/rank-0/log.txt",
        "checkpoints/gen-0004/data/1/x",
        "other",
    ):
        store.files[f"{RUN.trial(TrialId(0))}/{name}"] = b""
    store.files[f"{RUN.trial(TrialId(1))}/generation-2/rank-0/log.txt"] = b""
    repair(store, RUN, WHO)
    records = read(store, LAYOUT).records
    assert statuses(records) == ["queued", "succeeded", "queued"]
    assert records[-1] == GangFormed(trial=TrialId(0), generation=Generation(4), hosts=())
    sweep = resumed(records)
    assert [sweep.trials[TrialId(trial)].generation for trial in range(3)] == [4, 2, 1]
    assert (sweep.queue[0].id, sweep.queue[0].generation) == (0, 4)


def test_the_start_of_a_corrupt_snapshot_is_kept() -> None:
    store = corrupted(snapshots=True)
    names = ("snapshot-0001-00000002", "snapshot-0001-00000004")
    assert [path.rpartition("/")[2] for path in store.files if "snapshot" in path] == list(names)
    for name in names:
        lines = store.files[f"{FOLDER}/{name}"].splitlines(keepends=True)
        lines[3] = lines[3].upper()
        store.files[f"{FOLDER}/{name}"] = b"".join(lines)
    report = repair(store, RUN, WHO)
    assert "batch-0001-00000001 is missing" in report.problems[0]
    assert len([note for note in report.notes if "snapshot" in note]) == 2
    kept = read(store, LAYOUT).records
    assert kept[:2] == tuple(RECORDS[:2])
    assert statuses(kept) == ["succeeded", "succeeded", "queued"]


def test_without_a_readable_start_nothing_is_kept() -> None:
    store = corrupted(batch(1))
    store.files[LAYOUT.batch(1, 1)] = b"garbage\n"
    report = repair(store, RUN, WHO)
    assert (report.record_count, report.again) == (0, (0, 1, 2, 3))
    assert read(store, LAYOUT).records == ()


@pytest.mark.long
def test_every_corruption_can_be_repaired() -> None:
    """For any changed byte and any missing file, the kept records are correct, and a driver can resume with them."""
    for snapshots in (False, True):
        whole = corrupted(snapshots=snapshots)
        results = statuses(tuple(RECORDS))
        for path in [path for path in whole.files if "term" not in path]:
            content = whole.files[path]
            for position in range(-1, len(content), 7):
                store = MemoryStore()
                store.files = dict(whole.files)
                del store.files[path]
                if position >= 0:
                    changed = bytes([content[position] ^ 16])
                    store.files[path] = content[:position] + changed + content[position + 1 :]
                report = repair(store, RUN, WHO)
                opened = read(store, LAYOUT)
                assert report.record_count == len(opened.records)
                assert all(record in RECORDS for record in opened.records)
                found = statuses(opened.records)
                assert all(mine in (status, "queued") for mine, status in zip(found, results, strict=False))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [fault(), Crash()], ids=["fault", "crash"])
def test_a_repair_may_be_repeated(when: str, error: BaseException) -> None:
    for index in range(100):
        store = corrupted(batch(3))
        gate = FailAt(index, when, error)
        try:
            repair(GatedStore(store, gate), RUN, WHO)
        except (OSError, Crash):
            assert gate.broke
        if not gate.broke:
            break
        repair(store, RUN, WHO)
        assert statuses(read(store, LAYOUT).records) == ["succeeded", "succeeded", "queued"]
    assert 10 < index < 99


def test_a_driver_that_is_still_alive_is_deposed_by_a_repair() -> None:
    store = corrupted()
    journal = claim(store)
    journal.append(facts(0))
    store.files[LAYOUT.batch(1, 3)] = b"garbage\n"
    repair(store, RUN, WHO)
    with pytest.raises(DeposedError):
        journal.append(facts(1))


def test_corrupt_checkpoints_stay_marked_after_a_repair() -> None:
    store = MemoryStore()
    journal = claim(store)
    damage = CheckpointCorrupt(trial=TrialId(0), manifest="manifest-9", reason="gone")
    for records in ((BEGAN, added(1)), (formed(0),), (acknowledged(0, 5), acknowledged(0, 9)), (damage,)):
        journal.append(records)
    store.files[LAYOUT.batch(1, 2)] = b"garbage\n"
    repair(store, RUN, WHO)
    trial = resumed(read(store, LAYOUT).records).trials[TrialId(0)]
    assert [each.step for each in trial.checkpoints.retained] == [5]
    assert [each.step for each, _ in trial.checkpoints.corrupt] == [9]
