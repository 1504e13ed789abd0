"""A request to drain is checked, stored for the driver, and answered by it."""

from pathlib import Path
from typing import Any

import pytest

from sparktrain import cli
from sparktrain.errors import SparktrainError, SpecError
from sparktrain.runs import watcher
from sparktrain.runs.additions import drain_requests
from sparktrain.runs.additions.drain_requests import drain, pending_drains
from sparktrain.state.records import DrainCompleted, DrainDecided, DriverStarted
from tests.unit.clocks import InstantClock
from tests.unit.driver.stored import ScriptedRun, looked_at


class AnsweringClock(InstantClock):
    """While a user waits, the driver answers."""

    def __init__(self, run: ScriptedRun, **answer: Any) -> None:
        super().__init__()
        self.run = run
        self.answer = answer

    def wall(self) -> float:
        return 1.7e9 + self.at

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        for request in pending_drains(self.run.store, self.run.layout, ()) if self.answer else ():
            facts = {"host": request.host, "agent": request.agent} | self.answer
            self.run.write(DrainDecided(request=request.id, **facts))


@pytest.fixture(autouse=True)
def _driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "answers", lambda who: True)


def begun(tmp_path: Path) -> ScriptedRun:
    return ScriptedRun(tmp_path / "my runs").begin()


def test_a_request_is_stored_for_the_driver_and_returns_its_decision(tmp_path: Path) -> None:
    run = begun(tmp_path)
    decided = drain(run.place, "node-7", None, AnsweringClock(run, problem=""))
    assert (decided.host, decided.agent) == ("node-7", None)
    [request] = pending_drains(run.store, run.layout, ())
    assert request.id == decided.request
    assert pending_drains(run.store, run.layout, {request.id}) == []


def test_what_the_driver_refuses_is_an_error(tmp_path: Path) -> None:
    run = begun(tmp_path)
    with pytest.raises(SpecError, match="mnist: the run has no agent 7: its agents are 0 on a"):
        drain(run.place, None, 7, AnsweringClock(run, problem="the run has no agent 7: its agents are 0 on a"))


def test_without_an_answer_it_says_so(tmp_path: Path) -> None:
    run = begun(tmp_path)
    with pytest.raises(SparktrainError, match="has not answered within 30 s; it takes the request when it can"):
        drain(run.place, "node-7", None, AnsweringClock(run))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "name what to drain: a host with --host HOST, or one agent with --agent N"),
        (["--host", "a", "--agent", "1"], "and not both"),
        (["--host", " "], "--host is empty"),
        (["--agent", "-1"], "--agent is -1: the agents of a run have numbers from 0"),
    ],
)
def test_a_wrong_call_ends_before_anything_is_stored(
    tmp_path: Path, flags: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = begun(tmp_path)
    assert cli.main(["drain", run.directory, *flags]) == 2
    assert words in capfd.readouterr().err
    assert pending_drains(run.store, run.layout, ()) == []


def test_a_run_without_a_driver_has_nothing_to_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(tmp_path)
    run.end()
    with pytest.raises(SpecError, match="mnist has ended: it has no agents to drain"):
        drain(run.place, "node-7", None)
    lost = ScriptedRun(tmp_path / "others").begin()
    monkeypatch.setattr(watcher, "answers", lambda who: False)
    with pytest.raises(SpecError, match="the driver of mnist does not answer, so nothing can be drained: resume it"):
        drain(lost.place, "node-7", None)


def test_the_command_prints_what_is_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = begun(tmp_path)
    monkeypatch.setattr(drain_requests, "SystemClock", lambda: AnsweringClock(run, host="node-7.x", problem=""))
    assert cli.main(["drain", run.directory, "--agent", "3"]) == 0
    assert capfd.readouterr().out == f"{run.directory}: agent 3 on node-7.x is being drained; see sparktrain status\n"
    assert cli.main(["drain", run.directory, "--host", "node-7", "--json"]) == 0
    assert '"host": "node-7.x"' in capfd.readouterr().out
    assert cli.main(["drain", run.directory, "--host", "node-7", "--cancel"]) == 0
    assert capfd.readouterr().out == f"{run.directory}: node-7.x is not drained any more\n"
    assert sorted(request.cancels for request in pending_drains(run.store, run.layout, ())) == [False, False, True]


def test_status_says_what_is_drained_and_what_is_being_drained(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.write(DrainDecided(request="1", host="a"), DrainDecided(request="2", host="b", agent=1))
    run.write(DrainDecided(request="3", host="c", problem="there is none"), DrainCompleted(request="1"))
    assert looked_at(run).notes == (
        "a is drained: no member runs there, and none starts",
        "agent 1 on b is being drained: its members move, or finish",
    )
    run.write(DriverStarted(plan=run.plan.digest))
    assert [note.partition(" ")[0] for note in looked_at(run).notes] == ["a"], "the agents of a driver end with it"


def test_status_has_notices_and_no_drain_that_was_cancelled(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.write(DrainDecided(request="1", host="a"), DrainDecided(request="2", host="a", agent=1, notice="x", within_s=5))
    run.write(DrainDecided(request="3", host="b", agent=2, notice="SIGTERM"), DrainCompleted(request="3"))
    run.write(DrainDecided(request="4", host="a", cancels=True))
    assert looked_at(run).notes == (
        "1 agent had notice, and no member is left there: agent 2 on b (SIGTERM)",
        "agent 1 on a (x) is being drained, and leaves within 5 s: its members move, or finish",
    )
