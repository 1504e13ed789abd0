"""The picture of a run."""

from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from sparktrain.base.ids import TrialId
from sparktrain.display.progress import Progress, RunningTrial
from sparktrain.display.sweep_view import Rows, Screen, ended_line, failed_lines, status_line, summary
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.trial import TrialStatus
from tests.unit.runs.outcomes import chief

FAILURE = Failure(FailureKind.EXCEPTION, "ValueError: units")


def drawn(picture: RenderableType, width: int = 80, height: int = 24) -> list[str]:
    out = StringIO()
    Console(file=out, width=width, height=height, force_jupyter=False).print(picture)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def running(number: int, *, lr: float = 0.1, accuracy: float | None = None, **params: Any) -> RunningTrial:
    metrics = {} if accuracy is None else {"loss": 0.5, "accuracy": accuracy}
    step = None if accuracy is None else 3
    params = {"lr": lr, **params}
    return RunningTrial(
        id=TrialId(number), params=params, seconds=14.0, step=step, metrics=metrics, host="gpu-1.example.com"
    )


def progress(*trials: RunningTrial, **changes: Any) -> Progress:
    values: dict[str, Any] = {
        "name": "mnist", "total": 40, "done": 12, "running": len(trials), "queued": 24, "failed": 0, "lost": 0,
        "seconds": 83.0, "eta_s": 190.0, "metric": "accuracy", "best": (TrialId(7), 0.9143),
        "agents_alive": 4, "agents_wanted": 4, "running_trials": trials,
    }  # fmt: skip
    return Progress(**{**values, **changes})


def ended(number: int, status: TrialStatus = TrialStatus.SUCCEEDED, **changes: Any) -> TrialResult:
    values: dict[str, Any] = {
        "id": TrialId(number), "status": status, "params": {"lr": 0.01}, "seconds": 12.0, "generations": 1,
        "members": chief("/runs/log.txt"), "metrics": {"accuracy": 0.9143} if status is TrialStatus.SUCCEEDED else {},
        "error": None if status is TrialStatus.SUCCEEDED else FAILURE,
    }  # fmt: skip
    return TrialResult(**{**values, **changes})


def test_the_picture() -> None:
    screen = Screen()
    screen.trial_ended(ended(7))
    screen.update(progress(running(12, lr=0.1, accuracy=0.8831), running(13, lr=0.01), failed=2, lost=1, restarts=1))
    assert drawn(screen) == [
        "",
        "mnist  12 of 40 trials done  2 running  24 queued  2 to come  2 failed  1 lost",
        "━━━━━━━━━━━━━━━╸                                           1:23, about 3:10 left",
        "best so far  accuracy 0.9143  trial 7  lr=0.01",
        "agents 4 of 4  1 restart",
        "",
        "trial    step  accuracy    loss     time  host    lr",
        "   12       3    0.8831  0.5000     0:14  gpu-1   0.1",
        "   13                               0:14  gpu-1   0.01",
    ]


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (90, "mnist  8990 of 10000 trials done  64 running  24 queued  922 to come  231 failed  12 lost"),
        (60, "mnist  8990/10000 done  64 running  231 failed  12 lost"),
    ],
)
def test_a_narrow_terminal_has_the_failures_of_a_large_sweep(width: int, line: str) -> None:
    screen = Screen()
    large = {"total": 10_000, "done": 8990, "failed": 231, "lost": 12, "agents_alive": 61, "agents_wanted": 64}
    screen.update(progress(*(running(9000 + n, accuracy=0.5) for n in range(64)), **large))
    shown = drawn(screen, width)
    assert shown[1] == line
    assert shown[-1] == "and 49 more"
    assert all(cell_len(each) <= width for each in shown)
    assert not any("…" in each for each in shown)


def test_before_anything_runs() -> None:
    screen = Screen()
    screen.update(progress(done=0, best=None, eta_s=None, agents_alive=0, note="waiting for agents (0 of 4)"))
    assert drawn(screen)[3:] == [
        "best so far  no trial has succeeded yet",
        "waiting for agents (0 of 4)",
    ]
    assert drawn(screen)[2].strip() == "1:23"


def test_without_a_metric_there_is_no_best() -> None:
    screen = Screen()
    screen.update(progress(metric=None, best=None))
    assert not any("best" in line for line in drawn(screen))


def test_without_a_total_there_is_no_bar() -> None:
    screen = Screen()
    screen.update(progress(total=None, eta_s=None))
    assert drawn(screen)[1:3] == ["mnist  12 trials done  0 running  24 queued", "1:23"]


LONG = {f"a_long_name_{number}": f"/a/long/path/to/somewhere/{number}" for number in range(9)}


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_the_picture_fits_its_terminal(width: int, height: int) -> None:
    screen = Screen()
    trials = [running(number, lr=number, accuracy=0.5, **LONG, x=f"模型{number}") for number in range(100)]
    screen.update(progress(*trials, note="a note " * 40, failed=10, lost=10))
    lines = drawn(screen, width, height)
    assert len(lines) < height
    assert all(cell_len(line) <= width for line in lines)
    assert lines[-1].startswith("and ")


def test_parameters_stay_in_their_order() -> None:
    screen = Screen()
    trials = [running(number, lr=number / 10, accuracy=0.5, optimizer="sgd", units=64 + number) for number in range(2)]
    screen.update(progress(*trials))
    assert drawn(screen)[6].split()[-3:] == ["lr", "optimizer", "units"]
    assert drawn(screen)[7].split()[-3:] == ["0", "sgd", "64"]


def test_parameters_in_which_trials_differ_have_room_first() -> None:
    screen = Screen()
    fixed: dict[str, Any] = {f"fixed_parameter_{number}": "a long value of it" for number in range(5)}
    screen.update(progress(*(running(number, accuracy=0.5, **fixed, units=64 + number) for number in range(2))))
    assert drawn(screen)[7].split()[-1] == "64"


def test_headings_are_shortened_before_values() -> None:
    screen = Screen()
    trials = [
        running(number, accuracy=0.5, learning_rate_of_encoder=number / 7, dropout_of_the_head=number)
        for number in (1, 2)
    ]
    screen.update(progress(*trials))
    assert "0.142857" in drawn(screen)[7]
    assert "learning_rate…" in drawn(screen)[6]


def test_columns_stay_when_what_they_show_is_gone() -> None:
    screen = Screen()
    screen.update(progress(running(0, accuracy=1234567.0)))
    heading = drawn(screen)[6]
    screen.update(progress(running(0)))
    assert drawn(screen)[6] == heading


def test_a_trial_keeps_its_row() -> None:
    rows = Rows()

    def placed(*numbers: int) -> list[int | None]:
        return [None if trial is None else trial.id for trial in rows.place([running(number) for number in numbers])]

    assert placed(0, 1, 2) == [0, 1, 2]
    assert placed(0, 2) == [0, None, 2]
    assert placed(2, 3, 4) == [3, 4, 2]
    assert placed(3) == [3]
    assert placed() == []


def test_the_lines_that_stay_after_the_run() -> None:
    screen = Screen()
    assert drawn(summary(screen)) == []
    screen.trial_ended(ended(7))
    screen.update(progress(total=12, queued=0, failed=2))
    assert drawn(summary(screen)) == [
        "mnist  12 of 12 trials done  2 failed  in 1:23",
        "best  accuracy 0.9143  trial 7  lr=0.01",
    ]


def test_status_line() -> None:
    assert status_line(progress(running(1), failed=2, restarts=2, note="stopping")) == (
        "mnist: 12 of 40 trials done, 1 running, 24 queued, 3 to come, 2 failed; best accuracy 0.9143 in trial 7; "
        "agents 4 of 4, 2 restarts, stopping"
    )


@pytest.mark.parametrize(
    ("trial", "line"),
    [
        (ended(3), "trial 3 succeeded in 12 s: accuracy 0.9143 (lr=0.01)"),
        (ended(3, metrics={"loss": 1, "auc": 0.5}, params={}), "trial 3 succeeded in 12 s: loss 1.0000, auc 0.5000"),
        (ended(3, metrics={}, params={}), "trial 3 succeeded in 12 s"),
        (ended(3, TrialStatus.FAILED), "trial 3 failed after 12 s: ValueError: units (lr=0.01); log: /runs/log.txt"),
        (ended(3, TrialStatus.STOPPED, generations=0), "trial 3 stopped: ValueError: units (lr=0.01)"),
    ],
)
def test_ended_line(trial: TrialResult, line: str) -> None:
    assert ended_line(trial, "accuracy") == line


def test_a_failure_shows_its_cause_first() -> None:
    assert drawn(failed_lines(ended(3, TrialStatus.FAILED))) == [
        "trial 3 failed after 12 s: ValueError: units", "  lr=0.01", "  log: /runs/log.txt"
    ]  # fmt: skip


def test_nothing_of_the_users_reaches_the_terminal_unescaped() -> None:
    hostile = "\x1b[2J[red]\r\x07"
    screen = Screen()
    trial = RunningTrial(
        id=TrialId(1), params={hostile: hostile}, seconds=1.0, step=1, metrics={hostile: 1.0}, host=hostile
    )
    screen.update(progress(trial, name=hostile, metric=hostile, note=hostile))
    for picture in (
        screen,
        summary(screen),
        failed_lines(ended(1, TrialStatus.FAILED, members=chief(hostile), params={hostile: hostile})),
    ):
        text = "".join(drawn(picture, width=200))
        assert text.isprintable()
        assert "\\x1b[2J[red]" in text


LONG = {"batch_size": 64, "augmentation_policy": "autoaugment", "optimizer": "adam"}
METRICS = {"accuracy": 0.9, "loss": 0.31, "val_accuracy": 0.8, "val_loss": 0.44}


def test_80_columns_show_the_parameter_that_differs() -> None:
    shown = Screen()
    trials = [
        msgspec.structs.replace(running(number, accuracy=0.9), params={**LONG, "learning_rate": rate}, metrics=METRICS)
        for number, rate in enumerate([0.1, 0.01])
    ]
    shown.update(progress(trials[0]))
    assert "batch_" in drawn(shown, 80)[6], "the first trial has parameters, too"
    shown.update(progress(*trials))
    heading, first, second = drawn(shown, 80)[6:9]
    assert "learning_rate" in heading
    assert (first.split()[-1], second.split()[-1]) == ("0.1", "0.01")
    shown.trial_ended(ended(7, params={**LONG, "learning_rate": 0.1}))
    assert "learning_rate=0.1 batch_size=64" in drawn(shown, 80)[3], "so has the line of the best one"
    lost = ended(1, TrialStatus.FAILED, params={**LONG, "learning_rate": 0.01})
    assert drawn(shown.failed(lost))[1].startswith("  learning_rate=0.01 batch_size=64")


def test_a_run_that_was_stopped_counts_what_succeeded() -> None:
    stopped = progress(done=8, total=8, failed=1, stopped=5, running=0, queued=0)
    assert status_line(stopped).startswith("mnist: 2 of 8 trials succeeded, 0 running, 0 queued, 1 failed, 5 stopped;")
