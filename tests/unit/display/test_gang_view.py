"""The picture of a run of one gang."""

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.display.gang_view import Lag, lag_of, member_lines, shown, straggler
from sparktrain.display.progress import MemberLine, MemberState, Progress, RunningTrial
from sparktrain.display.sweep_view import Screen, status_line, summary
from sparktrain.state.gangs.step_times import SlowCause, SlowMember, StepTimes
from sparktrain.state.outcome import FailureKind, Restart
from tests.unit.display.test_sweep_view import drawn

RESTART = Restart(1, "gpu-2", FailureKind.SIGNAL, "killed by SIGKILL", 1.23, resumed_from_step=80, steps_lost=40)


def member(rank: int, pace: float | None = 14.2, **changes: Any) -> MemberLine:
    values: dict[str, Any] = {
        "rank": rank, "host": f"gpu-{rank + 1}.example.com", "role": Role.WORKER if rank else Role.CHIEF,
        "state": MemberState.TRAINING, "step": 120, "steps_per_s": pace,
        "metrics": {} if rank else {"loss": 0.2857, "accuracy": 0.8831},
    }  # fmt: skip
    return MemberLine(**{**values, **changes})


def progress(*members: MemberLine, **changes: Any) -> Progress:
    trials = (RunningTrial(id=TrialId(0), params={"lr": 0.1}, seconds=12.0, members=members),) if members else ()
    values: dict[str, Any] = {
        "name": "big", "total": 1, "done": 0, "running": len(trials), "queued": 1 - len(trials), "failed": 0, "lost": 0,
        "seconds": 83.0, "eta_s": None, "metric": "accuracy", "agents_alive": 3, "agents_wanted": 3,
        "running_trials": trials, "gang": 3,
    }  # fmt: skip
    return Progress(**{**values, **changes})


def picture(of: Progress, width: int = 90, height: int = 24) -> list[str]:
    screen = Screen()
    screen.update(of)
    return drawn(screen, width, height)


def test_the_picture() -> None:
    of = progress(member(0), member(1), member(2, 9.9), restarts=1, causes=(RESTART,))
    assert picture(of) == [
        "",
        "big  gang of 3  3 training",
        "1:23  step 120  14.2 steps/s  accuracy 0.8831  loss 0.2857",
        "agents 3 of 3  1 restart",
        "",
        "rank  host   state        step  steps/s               reported",
        "   0  gpu-1  training      120     14.2               accuracy 0.8831, loss 0.2857",
        "   1  gpu-2  training      120     14.2",
        "   2  gpu-3  training      120      9.9  30 % behind",
    ]


def test_a_gang_that_starts() -> None:
    forming = [member(rank, None, step=None, metrics={}, state=MemberState.STARTING) for rank in range(3)]
    assert picture(progress(*forming, note="a note"))[1:5] == [
        "big  gang of 3  3 starting", "1:23", "agents 3 of 3  a note", ""
    ]  # fmt: skip


def test_a_gang_that_waits_for_agents() -> None:
    of = progress(agents_alive=1, note="waiting for agents (1 of 3)")
    assert picture(of) == ["", "big  gang of 3  not started", "1:23", "waiting for agents (1 of 3)"]


def test_roles_are_shown_where_they_differ() -> None:
    lines = picture(progress(member(0), member(1, None, role=Role.PS), member(2, None, role=Role.EVALUATOR)))
    assert [line.split()[2] for line in lines[5:]] == ["role", "chief", "ps", "evaluator"]


@pytest.mark.parametrize("width", [40, 60, 90, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_the_picture_fits_its_terminal_and_has_the_slowest_member(width: int, height: int) -> None:
    members = [
        member(rank, 5.0 if rank == 90 else 14.2, metrics={f"m{n}": 1.0 for n in range(20)}) for rank in range(99)
    ]
    lines = picture(progress(*members, note="a note " * 40), width, height)
    assert len(lines) < height
    assert all(cell_len(line) <= width for line in lines)
    assert lines[-1].startswith("and ")
    assert lines[-2].split()[0] == "90"


def test_columns_stay_when_what_they_show_is_gone() -> None:
    screen = Screen()
    screen.update(progress(member(0), member(1, 1.0), member(2, role=Role.PS)))
    heading = drawn(screen, 90)[5]
    screen.update(progress(member(0), member(1), member(2)))
    assert drawn(screen, 90)[5] == heading


@dataclass(frozen=True)
class Pace:
    """Steps per second of some members, and which of them lags how much."""

    paces: tuple[float | None, ...]
    lag: tuple[int, float] | None


@pytest.mark.parametrize(
    "case",
    [
        Pace((10, 10, 10), None),
        Pace((10, 10, 8), None),  # 20 % is not more than 20 %
        Pace((10, 10, 7.9), (2, 0.21)),
        Pace((2, 10, 10), (0, 0.8)),
        Pace((5, 10), (0, 1 / 3)),
        Pace((10, 0, 10), (1, 1.0)),
        Pace((None, 10, 10, 5), (3, 0.5)),
        Pace((5,), None),
        Pace((0, 0), None),
        Pace((None, None), None),
        Pace((), None),
    ],
)
def test_the_slowest_member(case: Pace) -> None:
    found = lag_of([member(rank, pace) for rank, pace in enumerate(case.paces)])
    if case.lag is None:
        assert found is None
    else:
        assert found is not None
        assert (found.rank, found.behind) == (case.lag[0], pytest.approx(case.lag[1]))


def test_no_member_of_a_ring_is_behind() -> None:
    """Each measures its rate over a span of its own: one that has just waited for a checkpoint seems slow."""
    of = progress(member(0), member(1, 4.5), member(2), in_step=True)
    assert straggler(of) is None
    for text in (*picture(of), status_line(of), *member_lines(of)):
        assert "behind" not in text
    assert straggler(replace(of, in_step=False)) == Lag(1, pytest.approx(1 - 4.5 / 14.2))


def test_only_members_that_train_are_compared() -> None:
    others = [member(1, 1.0, role=Role.PS), member(2, 1.0, state=MemberState.ENDED), member(3, 9.5)]
    assert lag_of([member(0, 10.0), *others]) is None


def test_the_slowest_member_takes_the_last_place_that_there_is() -> None:
    members = [member(rank) for rank in range(5)]
    assert [each.rank for each in shown(members, Lag(4, 0.5), 3)] == [0, 1, 4]
    assert [each.rank for each in shown(members, Lag(1, 0.5), 3)] == [0, 1, 2]
    assert [each.rank for each in shown(members, None, 9)] == [0, 1, 2, 3, 4]
    assert shown(members, Lag(4, 0.5), 0) == []


def test_lines_for_a_log() -> None:
    of = progress(member(0), member(1, 0.123), member(2, None, role=Role.EVALUATOR, step=None), restarts=1)
    assert status_line(of) == (
        "big: gang of 3, 3 training; step 120, 14.2 steps/s, accuracy 0.8831, loss 0.2857; "
        "rank 1 is 98 % behind the median; agents 3 of 3, 1 restart"
    )
    assert member_lines(of) == [
        "rank 0 on gpu-1.example.com training: step 120, 14.2 steps/s, accuracy 0.8831, loss 0.2857",
        "rank 1 on gpu-2.example.com training: step 120, 0.12 steps/s, 98 % behind the median",
        "rank 2 on gpu-3.example.com (evaluator) training",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"done": 1}, "big  gang of 3  done  in 1:23"),
        ({"done": 1, "failed": 1}, "big  gang of 3  failed  in 1:23"),
        ({"done": 1, "lost": 1}, "big  gang of 3  lost  in 1:23"),
        ({}, "big  gang of 3  not started  in 1:23"),
    ],
)
def test_the_lines_that_stay_after_the_run(changes: dict[str, Any], line: str) -> None:
    screen = Screen()
    screen.update(progress(**changes))
    assert drawn(summary(screen)) == [line]


def test_a_sweep_of_gangs_has_a_line_for_each_trial_with_the_count_of_its_members() -> None:
    trial = RunningTrial(id=TrialId(0), params={"lr": 0.1}, seconds=12.0, members=(member(0), member(1)), host="gpu-1")
    shrunk = replace(trial, id=TrialId(1), members=(member(0),))
    lines = picture(progress(total=2, queued=0, running=2, gang=2, running_trials=(trial, shrunk)))
    assert [line.split() for line in lines[-3:]] == [
        ["trial", "step", "time", "members", "host", "lr"],
        ["0", "0:12", "2", "gpu-1", "0.1"],
        ["1", "0:12", "1", "gpu-1", "0.1"],
    ]


def test_a_run_of_one_process_looks_like_any_trial() -> None:
    trial = RunningTrial(id=TrialId(0), params={"lr": 0.1}, seconds=12.0, host="gpu-1")
    lines = picture(progress(gang=1, running_trials=(trial,)))
    assert "big  0 of 1 trial done" in lines[1]
    assert lines[-2].split() == ["trial", "step", "time", "host", "lr"]


def test_nothing_of_the_users_reaches_the_terminal_unescaped() -> None:
    hostile = "\x1b[2J[red]\r\x07"
    of = progress(member(0, host=hostile, metrics={hostile: 1.0}), name=hostile, note=hostile)
    for text in ("".join(picture(of, 200)), status_line(of), *member_lines(of)):
        assert text.isprintable()
        assert "\\x1b[2J[red]" in text


def test_a_ring_shows_where_steps_go_and_which_member_is_slow() -> None:
    times = [StepTimes(0.1, 0.0141), StepTimes(0.105, 0.0021, 0.007)]
    of = progress(*(member(rank, step=8, times=each) for rank, each in enumerate(times)), in_step=True)
    slow = SlowMember(1, 0.112, 0.1, SlowCause.COMPUTE)
    of = replace(of, running_trials=(replace(of.running_trials[0], slow=slow),))
    line = "rank 1 on gpu-2.example.com is slow: its steps take 112 ms, those of the others 100 ms; it computes longer"
    assert picture(of, width=120)[4:] == [
        line,
        "",
        "rank  host   state        step  steps/s   compute      wait      data  reported",
        "   0  gpu-1  training        8     14.2    100 ms     14 ms      0 ms  accuracy 0.8831, loss 0.2857",
        "   1  gpu-2  training        8     14.2    105 ms    2.1 ms    7.0 ms",
    ]
    assert picture(of, width=60)[6] == "rank  host   state        step  steps/s  reported"
    assert line in status_line(of)
    assert "computes 105 ms, waits for the others 2.1 ms, waits for data 7.0 ms" in member_lines(of)[1]
