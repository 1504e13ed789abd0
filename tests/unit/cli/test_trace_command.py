"""What the commands show of where the steps of a gang go, on a run directory that no gang has written."""

import json
from pathlib import Path

import pytest

from sparktrain import cli
from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.rundir.step_file import StepFile, encoded
from sparktrain.state.gangs.step_times import GangTimes, SlowCause, SlowMember, StepTimes
from sparktrain.state.records import StepsTimed
from tests.unit.display.test_top_screen import NOW, TopScreen, drawn
from tests.unit.driver.stored import ScriptedRun, looked_at

Capture = pytest.CaptureFixture[str]
LINES = [
    "rank 0 on host-a: computes 100 ms, waits for the others 14 ms, waits for data 0 ms",
    "rank 1 on host-b: computes 112 ms, waits for the others 2.1 ms, waits for data 0 ms",
    "rank 1 on host-b is slow: its steps take 112 ms, those of the others 100 ms; it computes longer",
]


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    """A gang of two that trains, with a slow member."""
    run = ScriptedRun(tmp_path / "runs", "big", total=1, workers=2).begin()
    run.add({"lr": 0.1})
    run.form(0, hosts=("host-a", "host-b"))
    slow = SlowMember(1, 0.112, 0.1, SlowCause.COMPUTE)
    times = GangTimes((StepTimes(0.1, 0.0141), StepTimes(0.112, 0.0021)), slow)
    run.write(StepsTimed(trial=TrialId(0), times=times, at=run.at))
    return run


def store_steps(run: ScriptedRun) -> None:
    for rank in (0, 1):
        layout = run.layout.member(Member(RunId("big"), TrialId(0), Generation(1), Rank(rank)))
        steps = [(number, number * 10**8 + rank, 0) for number in range(1, 6)]
        run.store.put_if_absent(layout.steps, encoded(StepFile(list(steps), [])))


def refusal(capfd: Capture, *words: str) -> str:
    assert cli.main(["trace", *words]) == 2
    return capfd.readouterr().err


@pytest.mark.parametrize("ends", [False, True])
def test_status_and_top_show_the_steps_of_each_rank(run: ScriptedRun, capfd: Capture, ends: bool) -> None:
    if ends:
        run.succeed(0, accuracy=0.9)
        run.end()
    assert cli.main(["status", run.directory]) == 0
    lines = capfd.readouterr().out.splitlines()
    first = lines.index(LINES[0])
    assert lines[first : first + 3] == LINES
    assert [line for line in drawn(TopScreen(looked_at(run), NOW)) if line.startswith("rank ")] == LINES
    assert cli.main(["status", run.directory, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["trials"][0]["step_times"] == {
        "members": [
            {"compute_s": 0.1, "wait_s": 0.0141, "data_s": 0.0},
            {"compute_s": 0.112, "wait_s": 0.0021, "data_s": 0.0},
        ],
        "slow": {"rank": 1, "work_s": 0.112, "others_s": 0.1, "cause": "compute"},
    }


def test_the_report_has_them_too(run: ScriptedRun, tmp_path: Path) -> None:
    assert cli.main(["report", run.directory, "-o", str(tmp_path / "report.html")]) == 0
    assert LINES[2] in (tmp_path / "report.html").read_text()


def test_a_trace_has_the_last_steps_of_each_rank(run: ScriptedRun, tmp_path: Path, capfd: Capture) -> None:
    store_steps(run)
    target = tmp_path / "trace.json"
    assert cli.main(["trace", run.directory, "--last", "2", "-o", str(target)]) == 0
    assert capfd.readouterr().out == f"{target}: open it at https://ui.perfetto.dev\n"
    events = [event for event in json.loads(target.read_text())["traceEvents"] if event["ph"] == "X"]
    steps = [(rank, f"step {number}") for rank in (0, 1) for number in (4, 5)]
    assert [(event["pid"], event["name"]) for event in events] == steps


def test_what_cannot_be_traced_is_refused(run: ScriptedRun, tmp_path: Path, capfd: Capture) -> None:
    target = str(tmp_path / "trace.json")
    assert "there are no times of steps of trial 0" in refusal(capfd, run.directory, "-o", target)
    store_steps(run)
    assert "--last (0) must be at least 1" in refusal(capfd, run.directory, "--last", "0", "-o", target)
    assert "trial 7 is none of run big" in refusal(capfd, run.directory, "7", "-o", target)
    assert "is in no folder that exists" in refusal(capfd, run.directory, "-o", str(tmp_path / "none" / "trace.json"))
    assert not Path(target).exists()
