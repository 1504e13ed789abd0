"""The final table."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from sparktrain.base.ids import TrialId
from sparktrain.display.summary import summary_table
from sparktrain.display.trial_table import as_text
from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus
from sparktrain.state.outcome import Failure, FailureKind
from tests.unit.runs.outcomes import BAD, GOOD, RESULT, chief


def shown(result: SweepOutcome, width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width).print(summary_table(result))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_final_table() -> None:
    assert shown(RESULT) == (
        "mnist: succeeded. 2 trials, 1 failed, in 12 s. Best accuracy 0.9000: trial 0.\n"
        "\n"
        "trial  lr   accuracy  status      time\n"
        "    0  0.1    0.9000  succeeded  3.5 s  best\n"
        "    1  10             failed     1.0 s\n"
        "\n"
        "trial 1 failed: ValueError: units\n"
        "    Traceback (most recent call last):\n"
        '      File "train.py", line 3, in train\n'
        "    ValueError: units\n"
        "    log: /runs/mnist/trials/0001/generation-1/rank-0/log.txt\n"
        "\n"
        "warning: trial 0: step 90 was not checkpointed: the disk is full\n"
        "\n"
        "warning: trial 0: all members had the same batch\n"
        "\n"
        "results and logs: /runs/mnist\n"
        "as a page: sparktrain report /runs/mnist"
    )


def test_a_narrow_terminal_cuts_parameters_and_no_other_column() -> None:
    params = [{"lr": n / 1e6, "units": n, "optimizer": f"adam-{n}"} for n in range(10_000)]
    many = tuple(
        replace(GOOD, id=TrialId(n), metrics={"accuracy": n / 1e4}, params=each) for n, each in enumerate(params)
    )
    lines = shown(replace(RESULT, trials=many), 60).splitlines()
    assert lines[3] == "trial  parameters           accuracy  status      time"
    assert lines[4] == " 9999  lr=0.009999 units=…    0.9999  succeeded  3.5 s  best"
    assert "the best 20 of 10000 trials" in lines


def test_trials_with_the_same_cause_are_listed_together() -> None:
    many = tuple(replace(BAD, id=TrialId(number)) for number in range(20))
    text = shown(replace(RESULT, status=SweepStatus.FAILED, trials=many))
    assert "trials 0, 1, 2, 3, 4, 5, 6, 7 and 12 more failed: ValueError: units" in text
    assert text.count("Traceback") == 1
    assert "log of trial 0: /runs" in text


def test_many_causes_are_cut() -> None:
    many = tuple(replace(BAD, id=TrialId(n), error=Failure(FailureKind.EXIT, f"cause {n}")) for n in range(30))
    text = shown(replace(RESULT, trials=many, directory=None))
    assert "cause 9" in text
    assert "cause 10" not in text
    assert text.endswith("20 other causes: see the logs of the trials")


def test_without_a_traceback_the_last_lines_of_the_log_are_shown() -> None:
    lost = replace(BAD, error=Failure(FailureKind.LOST, "node-7 was lost", "", tuple(f"line {n}" for n in range(20))))
    text = shown(replace(RESULT, trials=(lost,)))
    assert "line 19" in text
    assert "line 11" not in text


def test_nothing_that_a_trial_prints_reaches_the_terminal_unescaped() -> None:
    hostile = "\x1b[2J[red]x[/red]\r\x07"
    failure = Failure(FailureKind.EXCEPTION, hostile, hostile, (hostile,))
    trial = replace(BAD, params={hostile: hostile}, error=failure, members=chief(hostile))
    text = shown(replace(RESULT, name=hostile, reason=hostile, trials=(trial, replace(trial, id=TrialId(2)))))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "[red]x[/red]" in text


def test_each_notice_is_shown_once_whatever_number_of_trials_have_it() -> None:
    noticing = [replace(GOOD, id=TrialId(number), unsaved="", notices=("the same batch",)) for number in range(3)]
    text = shown(replace(RESULT, trials=tuple(noticing)))
    assert text.count("warning") == 1
    assert "warning: trial 0: the same batch, and 2 other trials likewise" in text


def test_a_printed_result_has_the_notices_that_the_command_line_shows() -> None:
    result = replace(RESULT, trials=(replace(GOOD, unsaved="", notices=("the same batch",)),))
    assert "\nwarning: trial 0: the same batch\n" in shown(result)
    assert "\nwarning: trial 0: the same batch\n" in f"{as_text(result)}\n"
