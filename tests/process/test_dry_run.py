"""`sparktrain sweep --dry-run`: what would run, checked as a real call is, with nothing started."""

import json
import re
from pathlib import Path

import pytest

from sparktrain import cli

PROGRAM = """
import time


def train(lr, k=1, ctx=None):
    time.sleep(0.3)
    return lr
"""


def lines(capfd: pytest.CaptureFixture[str], words: list[str]) -> list[str]:
    assert cli.main([*words, "--json"]) == 0
    found: list[str] = json.loads(capfd.readouterr().out)["lines"]
    return found


def test_a_dry_run_shows_the_sweep_and_its_time_by_a_former_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, runs = tmp_path / "dry_program.py", tmp_path / "runs"
    program.write_text(PROGRAM)
    call = ["sweep", f"{program}:train", "--metric", "loss", "--dir", str(runs), "--local", "--slots", "2"]
    grid = ["--grid", "lr=1,2,3", "--grid", "k=1,2"]
    dry = [*call, *grid, "--name", "real", "--stopper", "asha:most=9", "--dry-run"]
    first = lines(capfd, dry)
    assert first == [
        f"real: would be made in {runs / 'real'}",
        "real: space: grid of 3 lr x 2 k: 6 trials",
        "real: metric loss, lower is better",
        "real: stopper asha(most=9): compares trials after 1 and 3 of 9 steps",
        "real: 1 member for each trial; 6 slots at most; 2 here, so 2 trials at a time",
        "real: expected time: unknown, no run of this function is in the directory; run one trial first: --trials 1",
        "real: nothing was started",
    ]
    assert not [path for path in runs.rglob("*") if path.is_file()]

    assert cli.main([*call, *grid, "--trials", "1", "--name", "one", "--quiet"]) == 0
    capfd.readouterr()
    expected = lines(capfd, dry)[-2]
    found = re.fullmatch(
        r"real: expected time: ([0-9.]+) s with 2 trials at a time, by 1 trial of one, ([0-9.]+) s in all, "
        r"less with the stopper",
        expected,
    )
    assert found is not None
    assert float(found[1]) == pytest.approx(float(found[2]) / 2, abs=0.1)
    assert float(found[2]) >= 1.8
    assert not (runs / "real").exists()

    assert lines(capfd, [*call, *grid, "--name", "one", "--dry-run"])[0] == f"one: would be resumed in {runs / 'one'}"


def test_a_dry_run_refuses_what_the_call_would(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "wrong_program.py"
    program.write_text(PROGRAM)
    call = ["sweep", f"{program}:train", "--dry-run", "--dir", str(tmp_path / "runs")]
    assert cli.main([*call, "--grid", "rate=1"]) == 2
    assert "rate" in capfd.readouterr().err
    assert cli.main([*call, "--space", "lr=uniform(0, 1)"]) == 2
    assert "has no end" in capfd.readouterr().err
    assert cli.main([*call, "--grid", "lr=1", "--workers-per-trial", "4", "--backend", "none", "--local"]) == 0
    assert "a trial needs 4 slots, and there are 2: it would be refused" in capfd.readouterr().out
