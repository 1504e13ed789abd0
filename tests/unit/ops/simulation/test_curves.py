"""Curves from files: what is read, and what is refused with its line."""

import json
from pathlib import Path

import pytest

from sparktrain import cli
from sparktrain.errors import SpecError
from sparktrain.ops.simulation.curves import CurvePoint, from_csv

ROWS = "trial,step,seconds,loss\na,1,4.5,0.5\nb,0,1,0.9\na,0,2,0.7\n"


def written(folder: Path, content: str) -> str:
    path = folder / "curves.csv"
    path.write_text(content)
    return str(path)


def test_rows_in_any_order_are_curves(tmp_path: Path) -> None:
    found = from_csv(written(tmp_path, ROWS))
    assert (found.metric, found.mode) == ("loss", "min")
    assert [curve.points for curve in found.curves] == [
        (CurvePoint(0, 2.0, 0.7), CurvePoint(1, 4.5, 0.5)),
        (CurvePoint(0, 1.0, 0.9),),
    ]
    assert [curve.seconds for curve in found.curves] == [4.5, 1.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"starts with ''.*trial,step,seconds"),
        ("trial,step,loss\n", r"starts with 'trial,step,loss'"),
        ("trial,step,seconds,loss\n", "has a heading and no rows"),
        (ROWS + "c,x,1,1\n", r"curves\.csv:5: 'c,x,1,1' is no row"),
        (ROWS + "c,0,-1,1\n", r"curves\.csv:5"),
        (ROWS + "c,0,inf,1\n", r"curves\.csv:5"),
        (ROWS + "c,0,1\n", r"curves\.csv:5"),
    ],
)
def test_anything_else_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_csv(written(tmp_path, content))


def test_a_metric_without_a_clear_better_end_needs_a_mode(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS.replace("loss", "thing"))
    with pytest.raises(SpecError, match="mode='max'"):
        from_csv(path)
    assert from_csv(path, mode="max").mode == "max"
    with pytest.raises(SpecError, match="has the metric 'thing', and 'loss' was asked for"):
        from_csv(path, metric="loss", mode="max")


def test_the_command_prints_a_row_for_each_choice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ROWS)
    assert cli.main(["simulate", path, "--slots", "1,2", "--stopper", "threshold:upper=0.8"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "curves.csv: 2 trials, 3 reports of loss"
    assert [line.split()[:2] for line in lines[2:]] == [
        ["1", "none"], ["1", "threshold(upper=0.8)"], ["2", "none"], ["2", "threshold(upper=0.8)"],
    ]  # fmt: skip
    assert cli.main(["simulate", path, "--slots", "2", "--json"]) == 0
    [run] = json.loads(capfd.readouterr().out)["runs"]
    assert run == {
        "slots": 2, "stopper": [], "sampler": None, "seed": None, "seconds": 4.5, "slot_seconds": 5.5, "pruned": 0,
        "best": "a", "value": 0.5, "best_after": 4.5,
    }  # fmt: skip


@pytest.mark.parametrize(("words", "message"), [
    (["--slots", "0"], "--slots ('0') must be numbers"),
    (["--slots", "2,"], "--slots ('2,') must be numbers"),
    (["--trials", "0"], "--trials (0) must be a whole number from 1"),
    (["--seeds", "-1"], "--seeds (-1) must be a whole number from 1"),
    (["--sampler", "tpee"], "--sampler ('tpee') must be one of random, tpe"),
    (["--sampler", "tpe"], "sampler 'tpe' needs the parameters of trials, which a file of curves lacks: pass a run"),
    (["--sampler", "cmaes"], "sampler 'cmaes' learns only from the very cases that it suggested"),
    (["--stopper", "ashes"], "--stopper ('ashes') is no rule; did you mean 'asha'?"),
])  # fmt: skip
def test_wrong_words_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main(["simulate", written(tmp_path, ROWS), *words]) == 2
    assert message in capfd.readouterr().err
