"""Each command that a run prints, on its page, in its report or in a terminal, works as it stands."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.base.clock import SystemClock
from sparktrain.views.report.reading import read_document

OTHER_RUNS = pytest.mark.all(
    case="the commands that a grid, a sampled sweep, a sweep of gangs, a gang and failed trials print",
    covered_by="those of a sweep on a table, with a variable of the environment; `unit/runs/test_next_commands`",
)

TOKEN = "REPORTED_TOKEN"


def learn(lr: float, ctx: Any) -> dict[str, Any]:
    ctx.report(1, score=lr)
    return {"score": lr, "note": "done", "best_epoch": None}


def read_rows(lr: float, ctx: Any) -> dict[str, Any]:
    import os

    return {"score": lr, "rows": len(ctx.dataset("train").to_numpy()["x"]), "token": os.environ[TOKEN]}


def gather(lr: float, ctx: Any) -> dict[str, float]:
    return {"score": lr, "members": float(ctx.size)}


def fail(lr: float) -> dict[str, float]:
    raise ValueError(f"no lr of {lr}")


class Place(NamedTuple):
    """Where a run is made, and what is the same for all of them."""

    dir: str

    def options(self) -> dict[str, Any]:
        return {"dir": self.dir, "name": "it", "spark": st.local(slots=2), "progress": False}


def of_table(place: Place) -> str:
    rows = {"train": pa.table({"x": [1.0, 2.0, 3.0]})}
    env = {TOKEN: "secret"}
    made = st.sweep(read_rows, {"lr": [1.0, 2.0]}, metric="score", data=rows, env=env, **place.options())
    assert [(each.metrics["rows"], each.extra) for each in made.trials] == [(3.0, {"token": "secret"})] * 2
    return str(made.directory)


def of_grid(place: Place) -> str:
    return str(st.sweep(learn, {"lr": [1.0, 2.0]}, metric="score", **place.options()).directory)


def of_samples(place: Place) -> str:
    space = {"lr": st.uniform(0, 1)}
    made = st.sweep(learn, space, metric="score", trials=2, sampler="random", **place.options())
    return str(made.directory)


def of_gangs(place: Place) -> str:
    made = st.sweep(gather, {"lr": [1.0]}, metric="score", workers_per_trial=2, backend="none", **place.options())
    return str(made.directory)


def of_one_gang(place: Place) -> str:
    return str(st.run(gather, {"lr": 1.0}, workers=2, backend="none", **place.options()).directory)


def of_failures(place: Place) -> str:
    return str(st.sweep(fail, {"lr": [1.0, 2.0, 3.0]}, metric="score", max_failures=1, **place.options()).directory)


def printed(directory: str, capfd: pytest.CaptureFixture[str]) -> set[str]:
    """The commands in the document of page and report, and in what commands print."""
    document = read_document(directory, SystemClock())
    head = document.headline
    run = head.run
    commands = {f"{run.logs}{row.id}" for row in document.trials if row.details.generations}
    commands |= {f"{run.again}{row.id}" for row in document.trials if run.again}
    commands |= {head.best.command} - {""} if head.best is not None else set()
    capfd.readouterr()
    for command in ("status", "logs", "best", "fsck", "ls"):
        cli.main([command, directory])
    text = "\n".join(capfd.readouterr())
    commands |= set(re.findall(r"(?:with: |^)(sparktrain \S+ .*?)(?: prints one)?$", text, re.MULTILINE))
    return {command.replace(" TRIAL", " 0") for command in commands}


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (of_table, {"logs", "refit"}),
        pytest.param(of_grid, {"logs", "refit"}, marks=OTHER_RUNS),
        pytest.param(of_samples, {"logs", "refit"}, marks=OTHER_RUNS),
        pytest.param(of_gangs, {"logs", "refit"}, marks=OTHER_RUNS),
        pytest.param(of_one_gang, {"logs"}, marks=OTHER_RUNS),
        pytest.param(of_failures, {"logs", "refit", "resume"}, marks=OTHER_RUNS),
    ],
)
def test_each_command_that_a_run_prints_works(
    make: Callable[[Place], str],
    kinds: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    directory = make(Place(str(tmp_path / "my runs")))
    commands = printed(directory, capfd)

    assert {command.split()[1] for command in commands} == kinds
    if make is of_table:
        again = f"sparktrain refit '{directory}' --workers 1 --env {TOKEN} --local --from-checkpoint none --trial 1"
        assert again in commands
    of_last_trial = {command.split()[1]: command for command in sorted(commands)}
    for command in of_last_trial.values():
        code = cli.main(shlex.split(command)[1:])
        error = capfd.readouterr().err
        trained_to_failure = make is of_failures and command.split()[1] != "logs"
        assert code == (3 if trained_to_failure else 0), f"{command}: {error}"
