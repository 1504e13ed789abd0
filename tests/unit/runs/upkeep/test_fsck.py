"""Each kind of corruption in a run directory: its findings, what a resume would do, and what a repair does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.errors import RunDirectoryError
from sparktrain.runs.locate import place_of
from sparktrain.runs.results_json import from_json
from sparktrain.runs.upkeep import fsck
from sparktrain.runs.upkeep.fsck import Examined, RunExaminer
from sparktrain.runs.upkeep.repair import repair
from tests.unit.driver.stored import HandClock, ScriptedRun, looked_at, spoil, typical


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    """Trial 2 has checkpoints of steps 100, 150 and 170; its newest two and the one of generation 1 count."""
    run = typical(tmp_path / "runs")
    run.save(2, 150, generation=2)
    run.save(2, 170, generation=2)
    return run


def examined(run: ScriptedRun, fast: bool = False) -> Examined:
    before = run.store.list()
    found = RunExaminer(run.place, fast, lambda size, total: None).examine()
    assert run.store.list() == before, "it only looks"
    return found


def file(run: ScriptedRun, pattern: str) -> Path:
    return sorted((run.store.root / "mnist").glob(pattern))[-1]


def findings_of(found: Examined) -> list[tuple[str, str]]:
    return [(str(each.severity), each.subject) for each in found.findings]


def repaired(run: ScriptedRun, found: Examined) -> Examined:
    assert repair(run.place, found, HandClock())
    return examined(run)


def test_a_clean_run(run: ScriptedRun) -> None:
    found = examined(run)
    assert (found.code, found.findings) == (0, ())
    assert found.outlook == ("trial 2 resumes from step 170", "trial 3 starts from nothing")
    assert found.checkpoints == 4
    assert found.size == 4 * 3002


def test_progress_reaches_the_last_byte(run: ScriptedRun) -> None:
    progress: list[tuple[int, int]] = []
    RunExaminer(run.place, False, lambda size, total: progress.append((size, total))).examine()
    assert progress[-1] == (4 * 3002, 4 * 3002)
    assert progress == sorted(progress)


def test_a_changed_byte_is_found_by_reading_it_and_a_lost_one_by_the_size_too(run: ScriptedRun) -> None:
    shard = file(run, "trials/0002/checkpoints/gen-0002/data/00000170*.model*")
    spoil(shard)
    assert examined(run, fast=True).code == 0
    found = examined(run)
    assert (found.code, findings_of(found)) == (7, [("corrupt", "checkpoint")])
    assert "trial 2 resumes from step 150 in place of 170" in found.outlook
    shard.write_bytes(shard.read_bytes()[:-1])
    assert findings_of(examined(run, fast=True)) == [("corrupt", "checkpoint")]
    shard.unlink()
    assert "shard model.safetensors is missing" in examined(run, fast=True).findings[0].problem


def test_after_a_repair_the_trial_resumes_from_an_older_checkpoint(run: ScriptedRun) -> None:
    spoil(file(run, "trials/0002/checkpoints/gen-0002/manifest-00000170"))
    after = repaired(run, examined(run))
    assert (after.code, after.outlook[0]) == (0, "trial 2 resumes from step 150")
    assert [each.step for each in looked_at(run).trials[2].checkpoints] == [150]


def test_a_trial_without_a_readable_checkpoint_blocks_until_a_repair(run: ScriptedRun) -> None:
    for manifest in (run.store.root / "mnist" / "trials" / "0002" / "checkpoints").glob("*/manifest*"):
        spoil(manifest)
    found = examined(run)
    assert (found.code, set(findings_of(found))) == (8, {("blocking", "checkpoint")})
    assert found.outlook[0] == "trial 2 fails: it has no readable checkpoint; after --repair it starts from nothing"
    after = repaired(run, found)
    assert (after.code, after.outlook) == (0, ("trials 2, 3 start from nothing",))


def test_a_corrupt_checkpoint_of_a_trial_with_a_result_blocks_nothing(run: ScriptedRun) -> None:
    for manifest in (run.store.root / "mnist" / "trials" / "0000" / "checkpoints").glob("*/manifest*"):
        spoil(manifest)
    assert examined(run).code == 7


def test_a_corrupt_part_of_the_reports_is_named_and_blocks_nothing(run: ScriptedRun) -> None:
    run.note(0, 1, 2)
    run.note(0, 3)
    spoil(part := file(run, "reports/part-*.parquet"))
    found = examined(run)
    assert findings_of(found) == [("corrupt", "reports")]
    assert f"{part} is corrupt" in found.findings[0].problem
    assert "put a copy back, or delete it to read the other reports" in found.findings[0].problem
    part.unlink()
    assert examined(run).findings == ()


def test_reports_that_a_joined_part_repeats_are_a_note(run: ScriptedRun) -> None:
    run.note(0, 1)
    part = file(run, "reports/part-*.parquet")
    part.with_name(part.name.replace("00000001.parquet", "00000002.parquet")).write_bytes(part.read_bytes())
    found = examined(run)
    assert (found.code, findings_of(found)) == (0, [("note", "reports")])
    assert "1 part of reports that a joined one repeats" in found.findings[0].problem
    assert "`sparktrain gc` deletes" in found.findings[0].problem


def test_a_repair_of_a_corrupt_journal_keeps_what_can_be_kept(run: ScriptedRun) -> None:
    spoil(file(run, "journal/batch-0001-00000008"))  # trial 1 has failed
    found = examined(run)
    assert (found.code, findings_of(found)[0]) == (8, ("blocking", "journal"))
    assert "trials 1, 3 start from nothing" in found.outlook
    after = repaired(run, found)
    assert after.code == 0
    assert [result.status for result in looked_at(run).results] == ["succeeded", "running", "running", "queued"]
    assert len(after.lines()) < 15, "not every batch that no longer counts is listed"


def test_a_torn_tail_is_a_note(run: ScriptedRun) -> None:
    newest = file(run, "journal/batch-*")
    newest.write_bytes(newest.read_bytes()[:-5])
    found = examined(run)
    assert found.code == 0
    assert found.findings
    assert {severity for severity, _ in findings_of(found)} == {"note"}
    assert found.outlook[0] == "trial 2 resumes from step 150"


def lose_overview(run: ScriptedRun) -> None:
    file(run, "run.json").unlink()


def spoil_overview(run: ScriptedRun) -> None:
    file(run, "run.json").write_text("{")


@pytest.mark.parametrize("harm", [lose_overview, spoil_overview])
def test_run_json_is_rewritten_from_the_plan(run: ScriptedRun, harm: Callable[[ScriptedRun], None]) -> None:
    harm(run)
    found = examined(run)
    assert (found.code, findings_of(found)) == (8, [("blocking", "run.json")])
    assert repaired(run, found).code == 0
    overview = json.loads(file(run, "run.json").read_text())
    assert (overview["name"], overview["plan"], overview["metric"]) == ("mnist", run.plan.digest, "accuracy")


def test_unreadable_code_is_deleted_so_that_the_same_call_stores_it(run: ScriptedRun) -> None:
    spoil(file(run, "code/*"))
    found = examined(run)
    assert (found.code, findings_of(found)) == (8, [("blocking", "code")])
    assert "resume by the same call" in found.findings[0].problem
    after = repaired(run, found)
    assert (after.code, list((run.store.root / "mnist" / "code").iterdir())) == (8, [])


def test_a_corrupt_plan_blocks_and_cannot_be_repaired(run: ScriptedRun) -> None:
    spoil(file(run, "plans/*"))
    found = examined(run)
    assert (found.code, findings_of(found), found.outlook) == (8, [("blocking", "plan")], ())
    assert repair(run.place, found, HandClock()) == []


RESULTS = {
    "missing": lambda path: path.unlink(),
    "garbled": lambda path: path.write_text("{]"),
    "other": lambda path: path.write_bytes(path.read_bytes().replace(b'"succeeded"', b'"failed"')),
}


@pytest.mark.parametrize("harm", RESULTS)
def test_results_are_rewritten_from_the_journal(run: ScriptedRun, harm: str) -> None:
    run.succeed(2, accuracy=0.95)
    run.succeed(3, accuracy=0.2)
    run.end()
    assert repaired(run, examined(run)).code == 0
    path = file(run, "results.json")
    good = path.read_bytes()
    RESULTS[harm](path)
    found = examined(run)
    assert (found.code, findings_of(found)) == (7, [("corrupt", "results.json")])
    assert found.outlook == ("nothing is left to do",)
    assert repaired(run, found).code == 0
    assert path.read_bytes() == good
    assert from_json(json.loads(good)).ranked[0].id == 2


def test_nothing_is_repaired_while_a_driver_owns_the_run(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "answers", lambda who: True)
    spoil(file(run, "trials/0002/checkpoints/gen-0002/manifest-00000170"))
    found = examined(run)
    with pytest.raises(RunDirectoryError, match="is in use by process 4711 on host-1"):
        repair(run.place, found, HandClock())


def test_a_checkpoint_that_a_driver_replaces_is_no_finding(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "answers", lambda who: True)

    def after_each_look(size: int, total: int) -> None:
        if not run.store.exists("mnist/trials/0002/checkpoints/gen-0002/manifest-00000190"):
            run.save(2, 190, generation=2)
            file(run, "trials/0002/checkpoints/gen-0002/data/00000150*.model*").unlink()

    assert RunExaminer(run.place, False, after_each_look).examine().code == 0


def test_the_json_has_the_same_findings(run: ScriptedRun) -> None:
    spoil(file(run, "trials/0002/checkpoints/gen-0002/manifest-00000170"))
    document = json.loads(json.dumps(examined(run).document()))
    assert document["code"] == 7
    [finding] = document["findings"]
    assert (finding["severity"], finding["subject"], finding["trial"], finding["step"]) == (
        "corrupt",
        "checkpoint",
        2,
        170,
    )
    assert document["resume"][0] == "trial 2 resumes from step 150 in place of 170"


def test_the_folder_of_another_program_is_not_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "proj"
    for name in ("run.json", "results.json", "journal/notes.txt", "plans/0123456789abcdef.json", "code/main.msgpack"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"command": "npm run"}')
    place = place_of(str(folder))
    before = place.store.list()
    with pytest.raises(RunDirectoryError):
        repair(place, RunExaminer(place, False, lambda size, total: None).examine(), HandClock())
    assert place.store.list() == before
    assert place.store.read("proj/results.json") == b'{"command": "npm run"}'
