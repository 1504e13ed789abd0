"""A journal that has lost records which had counted differs from that of a driver that died at that moment."""

import json
from pathlib import Path
from random import Random

import pytest

from sparktrain.errors import JournalCorruptError
from sparktrain.rundir.journal.reader import read
from sparktrain.runs import history, lost_records
from sparktrain.runs.history import StoredRun, look
from sparktrain.runs.results_json import from_json, to_bytes
from sparktrain.runs.upkeep.fsck import Examined, RunExaminer
from sparktrain.runs.upkeep.repair import repair
from sparktrain.state.records import AnyRecord, TrialConcluded
from tests.unit.driver.stored import HandClock, ScriptedRun, looked_at, spoil, typical
from tests.unit.rundir.snapshots import quick_folder

CORRUPTIONS = 120


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    """It has ended: trials 0 and 2 have succeeded, 1 has failed, 3 was stopped before it started."""
    run = typical(tmp_path / "runs")
    run.log(1, "oh\n")
    run.succeed(2, accuracy=0.95)
    run.end("stopped", "by the user")
    publish(run)
    return run


def publish(run: ScriptedRun) -> None:
    run.store.delete(run.layout.results)
    run.store.put_if_absent(run.layout.results, to_bytes(looked_at(run).as_outcome()))


def batches(run: ScriptedRun) -> list[Path]:
    return sorted(run.store.root.glob("mnist/journal/batch-*"))


def lose(run: ScriptedRun, count: int) -> None:
    """The newest batches are gone."""
    for path in batches(run)[-count:]:
        path.unlink()


def found(run: ScriptedRun) -> StoredRun:
    there = look(run.store, run.layout)
    assert there is not None
    return there


def examined(run: ScriptedRun) -> Examined:
    return RunExaminer(run.place, False, lambda size, total: None).examine()


def statuses(run: ScriptedRun) -> list[str]:
    return [str(each.status) for each in looked_at(run).results]


def test_a_result_that_was_reported_and_is_gone_is_no_clean_end(run: ScriptedRun) -> None:
    lose(run, 2)  # that trial 2 has succeeded, and the end
    with pytest.raises(
        JournalCorruptError, match=r"newest records are lost: .*results\.json has a result of trial 2\)"
    ):
        look(run.store, run.layout)
    report = examined(run)
    assert (report.code, report.findings[0].subject) == (8, "journal")


def test_a_batch_that_was_cut_and_had_counted_is_no_torn_tail(run: ScriptedRun) -> None:
    lose(run, 1)
    newest = batches(run)[-1]
    newest.write_bytes(newest.read_bytes()[:-5])
    assert read(run.store, run.layout.journal).notes, "by itself it looks like one"
    with pytest.raises(JournalCorruptError, match="a result of trial 2"):
        look(run.store, run.layout)


def test_the_end_alone_may_be_missing(run: ScriptedRun) -> None:
    """As when the driver has died before it: nothing is lost by that."""
    lose(run, 1)
    assert not found(run).ended


def test_a_repair_takes_the_results_back(run: ScriptedRun) -> None:
    before = looked_at(run)
    lose(run, 2)
    assert repair(run.place, examined(run), HandClock()) == [
        f"the journal has 1 result back from {run.store.where(run.layout.results)}"
    ]
    assert examined(run).code == 0
    assert [each.status for each in looked_at(run).results] == [each.status for each in before.results]
    assert looked_at(run).results[2].metrics == {"accuracy": 0.95}
    assert not found(run).ended, "a driver that resumes it notes the end"


def test_a_failure_is_taken_back_with_its_cause(run: ScriptedRun) -> None:
    before = looked_at(run).results[1]
    lose(run, len(batches(run)) - 4)  # nothing but that the trials were added and two gangs were formed
    repair(run.place, examined(run), HandClock())
    after = looked_at(run).results[1]
    assert (after.status, after.error, after.seconds) == (before.status, before.error, before.seconds)
    assert [each.generations for each in looked_at(run).results] == [1, 1, 2, 0], "no generation is used again"


def test_files_of_a_gang_prove_that_it_started(tmp_path: Path) -> None:
    """Without results: a driver that is killed has not written any."""
    run = typical(tmp_path / "runs")
    lose(run, 2)  # that the second gang of trial 2 was formed, and what it has reported
    with pytest.raises(JournalCorruptError, match="files of gangs that it does not know, of trial 2"):
        look(run.store, run.layout)
    assert repair(run.place, examined(run), HandClock()) == []
    assert examined(run).code == 0
    assert looked_at(run).results[2].generations == 2


def test_unknown_trials_are_reported_with_the_next_step(run: ScriptedRun) -> None:
    lose(run, len(batches(run)) - 1)
    before = run.store.read(run.layout.results)
    report = examined(run)
    folder = run.store.where("mnist/trials/0002")
    assert any(f"trial 2 cannot be kept: move {folder} away" in each.problem for each in report.findings)
    repair(run.place, report, HandClock())
    assert run.store.read("mnist/results-before-0002.json") == before, "the last copy of the results stays"
    for path in (run.store.root / "mnist/trials").iterdir():
        path.rename(run.store.root / path.name)
    assert examined(run).code == 0
    assert found(run).sweep().trials == {}


def test_a_driver_that_writes_meanwhile_has_lost_nothing(run: ScriptedRun) -> None:
    """What seemed to be missing is there when the journal is read again."""
    whole = read(run.store, run.layout.journal).records
    assert lost_records.lost_records(run.store, run.layout, whole[:3], lambda: whole[:3])
    assert not lost_records.lost_records(run.store, run.layout, whole[:3], lambda: whole)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"version": 99}'])
def test_results_that_cannot_be_read_prove_nothing(run: ScriptedRun, content: bytes) -> None:
    run.store.delete(run.layout.results)
    run.store.put_if_absent(run.layout.results, content)
    assert statuses(run) == ["succeeded", "failed", "succeeded", "queued"]
    assert found(run).ended


def test_retried_trials_have_lost_nothing(run: ScriptedRun) -> None:
    """The results are those of the last end: what a driver does after it does not contradict them."""
    run.begin()
    run.form(1, generation=2)
    run.form(3)
    run.lose(1)
    assert not found(run).ended


# ---- any corruption


def harm(path: Path, random: Random) -> None:
    """Delete a file, cut it anywhere, or change one bit."""
    content = path.read_bytes()
    match random.randrange(3):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[: random.randrange(len(content))])
        case 2:
            spoil(path)


class Grouped(ScriptedRun):
    """Records go to the journal in groups, as those that come while others are written."""

    def __init__(self, folder: Path) -> None:
        self.group: list[AnyRecord] = []
        self.concluded: set[int] = set()
        """Trials with durable results."""
        self.witnessed: set[int] = set()
        """The trials with proof of a result in another file."""
        super().__init__(folder, total=None)

    def write(self, *records: AnyRecord) -> None:
        self.group += records

    def flush(self) -> None:
        assert self.journal is not None
        if self.group:
            self.witnessed |= self.concluded
            self.journal.append(self.group)
            self.concluded |= {each.trial for each in self.group if isinstance(each, TrialConcluded)}
            self.group.clear()

    def play(self, random: Random) -> None:
        """A driver ends, dies, is followed by another one, compacts or falls silent; or none of it happens."""
        assert self.journal is not None
        match random.randrange(8):
            case 0:
                self.flush()
                self.journal.settle()
                self.witnessed |= self.concluded
            case 1:
                self.flush()
                self.journal.compact(read(self.store, self.layout.journal).records)
            case 2 | 3:
                self.end()
                self.flush()
                publish(self)
                self.witnessed |= self.concluded
            case 4:
                self.flush()
                self.begin()
            case 5:
                self.flush()


def corrupted(folder: Path, random: Random) -> Grouped:
    """A run with some results and one corrupt file in its journal."""
    run, count = Grouped(folder / "runs"), random.randrange(1, 8)
    run.begin()
    run.add(*({"lr": float(number)} for number in range(count)))
    for trial in range(count):
        run.form(trial)
        run.flush()
        if random.random() < 0.7:
            run.succeed(trial, accuracy=0.5)
        run.play(random)
    harm(random.choice([path for path in run.store.root.glob("mnist/journal/*") if "term" not in path.name]), random)
    return run


def silent(folder: Path, seed: int) -> set[int] | None:
    """The results that are gone without a report, despite proof; None when the corruption is reported."""
    run = corrupted(folder / str(seed), Random(seed))
    try:
        kept = {trial.id for trial in found(run).sweep().trials.values() if trial.status.observed}
    except JournalCorruptError:
        return None
    return run.witnessed - kept


@pytest.mark.long
def test_no_corruption_silently_drops_a_result_that_leaves_proof() -> None:
    with quick_folder() as folder:
        gone = [silent(folder, seed) for seed in range(CORRUPTIONS)]
    assert [seed for seed, lost in enumerate(gone) if lost] == []
    assert gone.count(None) > CORRUPTIONS / 5


def test_without_the_proof_the_same_corruption_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "check_whole", lambda *_: None)
    with quick_folder() as folder:
        assert any(silent(folder, seed) for seed in range(CORRUPTIONS))


def test_results_are_the_same_after_a_repair(run: ScriptedRun) -> None:
    before = from_json(json.loads(run.store.read(run.layout.results)))
    lose(run, 3)
    repair(run.place, examined(run), HandClock())
    after = looked_at(run).as_outcome()
    assert [each.metrics for each in after.trials] == [each.metrics for each in before.trials]
