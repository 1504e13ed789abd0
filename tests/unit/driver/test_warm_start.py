"""What `warm_start=` refuses before anything starts, and what it takes from runs and tables."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sparktrain.config.distribution import choice, uniform
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import RunDirectoryError, SpecError
from tests.unit.scripted import of_a_script

SPACE = {"lr": uniform(0, 1), "units": choice([16, 64])}


@of_a_script
def train(lr: float, units: int) -> float:
    return lr


def prepared(folder: Path, warm_start: Any, space: Any = None, **options: Any) -> CheckedCall:
    values = {"metric": "loss", "dir": str(folder), "name": "new", "preload": [], "trials": 4, **options}
    return compose(train, space or SPACE, SweepOptions(warm_start=warm_start, **values))


POINT = {"lr": 0.5, "units": 16}
LISTS = {"lr": [0.1, 0.5], "units": [16, 64]}


@pytest.mark.parametrize(
    ("warm_start", "options", "message"),
    [
        (3, {}, r"^warm_start is 3 \(int\); pass a run directory, a result"),
        ("", {}, r"^warm_start is '' \(str\), an empty path"),
        ([{}], {}, r"^warm_start\[0\] is an empty dict"),
        ([["runs/a", 3]], {}, r"^warm_start is 3 \(int\)"),
        ({"lr": 5, "units": 16}, {}, r"the point \{'lr': 5, .* outside of the space: lr = 5 is not in uniform\(0, 1\)"),
        ({"lr": 0.5}, {}, r"outside of the space: 'units' is missing"),
        ([POINT, POINT], {}, r"has the point .* twice"),
        ([POINT, {**POINT, "lr": 0.1}], {"trials": 1}, r"has 2 points, and trials=1"),
        ("runs/a", {"metric": None, "sampler": "random"}, r"has results, and the sweep has no metric"),
        ("runs/a", {"sampler": "random"}, r"sampler='random' learns nothing"),
        ("runs/a", {"sampler": "qmc"}, r"sampler='qmc' learns nothing"),
        ("runs/a", {"space": LISTS}, r"sampler='grid' learns nothing.*Use sampler='tpe'.*sparktrain.extend"),
        ("runs/a", {"sampler": "nsgaii"}, r"learns only from trials of its own generations"),
        ({"lr": 0.2, "units": 16}, {"space": LISTS}, r"lr = 0.2 is not in"),
    ],
)
def test_what_cannot_help_is_refused(tmp_path: Path, warm_start: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        prepared(tmp_path, warm_start, **options)


def test_a_directory_without_a_run_and_that_of_the_run_itself_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"former is no run directory"):
        attach(prepared(tmp_path, tmp_path / "former"))
    with pytest.raises(SpecError, match=r"new, the directory of this run itself"):
        attach(prepared(tmp_path, tmp_path / "new"))


def test_a_table_gives_its_rows_with_a_metric_within_the_space(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "id": range(7),
            "lr": [0.1, 0.2, 3.0, 0.4, None, 0.6, 0.7],
            "units": [16, 64.0, 16, 32, 64, 64, 16],
            "loss": [1, 2.5, 3, 4, 5, None, float("inf")],
            "host": "a",
        }
    )
    made = attach(prepared(tmp_path, [table, POINT])).definition.plan.warm
    assert [(each.params, each.value) for each in made.known] == [
        ({"lr": 0.1, "units": 16}, 1.0),
        ({"lr": 0.2, "units": 64}, 2.5),
    ]
    assert made.points == (POINT,)
    assert made.lines == (
        f"2 of 7 trials of {made.sources[0]} are in the space, and known to the sampler; 3 outside of the space; "
        "2 without loss",
        "1 point of warm_start is tried first",
    )
    with pytest.raises(SpecError, match=r"the table has no column 'loss' or 'metrics.loss', but id, lr, units, host"):
        attach(prepared(tmp_path, table.drop(columns="loss")))


def test_failed_and_pruned_rows_of_a_result_count_as_such(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "params.lr": [0.1, 0.2, 0.3],
            "params.units": [16, 16, 16],
            "lr": [9, 9, 9],
            "metrics.loss": [1.0, 2.0, 3.0],
            "status": ["succeeded", "pruned", "failed"],
        }
    )
    made = attach(prepared(tmp_path, table)).definition.plan.warm
    assert [(each.params["lr"], each.status) for each in made.known] == [(0.1, "succeeded"), (0.2, "pruned")]


def test_the_plan_of_a_run_without_a_warm_start_is_as_before(tmp_path: Path) -> None:
    assert b"warm" not in attach(prepared(tmp_path, None)).definition.plan.encode()


def test_cmaes_needs_ten_results(tmp_path: Path) -> None:
    numbers = {"sampler": "cmaes", "space": {"lr": uniform(0, 1), "units": uniform(1, 9)}}
    rows = [{"lr": n / 20, "units": 2.0, "loss": n, "status": "pruned" if n == 9 else "succeeded"} for n in range(11)]
    made = attach(prepared(tmp_path, pd.DataFrame(rows), **numbers)).definition.plan.warm
    assert len(made.known) == 11
    with pytest.raises(SpecError, match=r"^warm_start has 9 results in the space, and sampler='cmaes' .* of 10 at"):
        attach(prepared(tmp_path, pd.DataFrame(rows[:10]), **numbers))
    points = attach(prepared(tmp_path, {"lr": 0.5, "units": 2.0}, **numbers)).definition.plan.warm
    assert points.known == ()
