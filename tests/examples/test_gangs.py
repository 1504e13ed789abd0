"""The examples of gangs: one file trains alone, in a gang on either ring, and as a sweep of gangs; and programs that
show the ideas of distributed TensorFlow."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sparktrain as st

SIX_EPOCHS = pytest.mark.all(case="a ring that loses a member, six epochs", covered_by="two epochs")
ONE_PROCESS = pytest.mark.all(
    case="the programs of a mirrored strategy and of central storage",
    covered_by="`training/test_strategy`: both, in a loop and in `fit`",
)

MIRRORED = pytest.mark.all(
    case="the program of a mirrored strategy over two members",
    covered_by="`training/test_strategy`: that strategy, in a loop and in `fit`; the program with a parameter server",
)

ROOT = Path(__file__).parents[2]

SHORT, FULL = (2, 0.8), (6, 0.84)
"""Epochs of fashion_mnist.py, and the least accuracy after them."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def pool(gang_pool: st.Pool) -> st.Pool:
    return gang_pool


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import an example by its name, as the command line does."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"dir": str(tmp_path), "name": "run", "seed": 1, "progress": False}


@pytest.mark.all(
    case="Fashion-MNIST alone, and on either ring", covered_by="a ring of two that loses a member, two epochs"
)
@pytest.mark.parametrize(("workers", "backend"), [(1, "horovod"), (2, "horovod"), (2, "tensorflow")])
def test_fashion_mnist_trains_alone_and_on_either_ring(
    pool: st.Pool, example: Any, options: dict[str, Any], workers: int, backend: str
) -> None:
    params = {"learning_rate": 0.01, "dropout": 0.2}
    result = pool.run(example("fashion_mnist").train, params, workers=workers, backend=backend, **options)
    assert result.metrics["accuracy"] > 0.84
    assert Path(str(result.model_path)).is_file()
    assert not result.restarts


def processes(run: Path, members: str) -> list[list[str]]:
    """The numbers of processes in the lines of the drill, for each log."""
    logs = sorted(run.glob(f"trials/0000/generation-1/{members}/log.txt"))
    return [re.findall(r"^rank \d .* in process (\d+)$", log.read_text(), re.MULTILINE) for log in logs]


@pytest.mark.parametrize(("epochs", "accuracy"), [SHORT, pytest.param(*FULL, marks=SIX_EPOCHS)])
def test_a_gang_that_loses_a_member_resumes(
    pool: st.Pool, example: Any, options: dict[str, Any], epochs: int, accuracy: float
) -> None:
    params = {"learning_rate": 0.01, "dropout": 0.2, "epochs": epochs, "kill_at": 120}
    result = pool.run(example("fashion_mnist").train, params, workers=2, backend="horovod", **options)
    assert result.metrics["accuracy"] > accuracy
    assert Path(str(result.model_path)).is_file()
    [restart] = result.restarts
    assert (restart.kind, restart.rank) == ("killed", 1)
    assert (restart.healed, restart.steps_lost, restart.resumed_from_step) == (True, 0, 120)
    [[start, end]] = processes(Path(options["dir"]) / "run", "rank-0")
    assert start == end
    [[killed], [next_process, last]] = processes(Path(options["dir"]) / "run", "rank-1*")
    assert killed != next_process == last


@pytest.mark.all(
    case="Fashion-MNIST in a sweep of gangs, six epochs",
    covered_by="a sweep of gangs with a smaller model, in a loop of its own",
)
def test_fashion_mnist_trains_in_a_sweep_of_gangs(pool: st.Pool, example: Any, options: dict[str, Any]) -> None:
    epochs, accuracy = FULL
    space = {"learning_rate": [0.01, 1e-6], "dropout": [0.2], "epochs": [epochs]}
    swept_by_gangs(pool, example("fashion_mnist").train, space, accuracy, options)


def test_a_custom_training_loop_in_a_sweep_of_gangs(pool: st.Pool, example: Any, options: dict[str, Any]) -> None:
    swept_by_gangs(pool, example("custom_loop").train, {"learning_rate": [0.1, 1e-6]}, 0.7, options)


def swept_by_gangs(pool: st.Pool, train: Any, space: Any, accuracy: float, options: dict[str, Any]) -> None:
    """Sweep a good and a bad learning rate, each with two members; only the good one reaches the accuracy."""
    result = pool.sweep(train, space, metric="accuracy", workers_per_trial=2, backend="tensorflow", **options)
    good, bad = result.trials
    assert good.metrics["accuracy"] > accuracy > bad.metrics["accuracy"]
    assert [len(trial.members) for trial in result.trials] == [2, 2]


@pytest.mark.parametrize(
    ("name", "gang"),
    [
        ("parameter_server", {"workers": 2, "ps": 1}),
        pytest.param("multi_worker_mirrored", {"workers": 2}, marks=MIRRORED),
        pytest.param("mirrored", {"workers": 1}, marks=ONE_PROCESS),
        pytest.param("central_storage", {"workers": 1}, marks=ONE_PROCESS),
    ],
)
def test_programs_with_a_strategy_of_tensorflow(
    pool: st.Pool, example: Any, options: dict[str, Any], name: str, gang: dict[str, int]
) -> None:
    result = pool.run(example(name).train, {}, backend="tensorflow", **gang, **options)
    assert result.metrics["accuracy"] > 0.7


def test_two_lists_are_launched_in_pairs(pool: st.Pool, example: Any, options: dict[str, Any]) -> None:
    program = example("hyperparameters")
    good, bad = pool.launch(program.train, program.LISTS, metric="accuracy", **options).trials
    assert [each.params for each in (good, bad)] == [
        {"learning_rate": 0.1, "dropout": 0.2},
        {"learning_rate": 0.001, "dropout": 0.5},
    ]
    assert good.metrics["accuracy"] > 0.7 > bad.metrics["accuracy"]


@pytest.mark.all(case="a grid of both lists", covered_by="`launch` over two lists")
def test_a_grid_has_every_combination_of_both_lists(pool: st.Pool, example: Any, options: dict[str, Any]) -> None:
    del options["name"]  # two runs
    pairs, grid = example("hyperparameters").search(pool, **options)
    assert (len(pairs.trials), len(grid.trials)) == (2, 4)
    assert grid.best.params["learning_rate"] == 0.1


def test_a_ring_with_a_scaled_rate_learns(pool: st.Pool, example: Any, options: dict[str, Any]) -> None:
    found = pool.run(example("linear_scaling").train, {"epochs": 2}, workers=2, backend="horovod", **options).metrics
    assert (found["steps"], found["rate"]) == (200, 0.04)
    assert found["accuracy"] > 0.7


@pytest.mark.all(case="a ring with a scaled rate against one process", covered_by="the ring alone")
def test_a_ring_with_a_scaled_rate_is_as_good_as_one_process(
    pool: st.Pool, example: Any, options: dict[str, Any]
) -> None:
    del options["name"]  # two runs
    head, alone, ring = (line.split() for line in example("linear_scaling").compare(pool, **options))
    assert head[-1] == "accuracy"
    assert (alone[:4], ring[:4]) == (["1", "64", "0.02", "800"], ["2", "128", "0.04", "400"])
    assert float(ring[4]) > float(alone[4]) - 0.05
    assert float(ring[4]) > 0.78


@pytest.mark.all(case="between-graph replication with a parameter server", covered_by="`training/test_between_graph`")
def test_workers_with_graphs_of_their_own_share_variables(pool: st.Pool, example: Any, options: dict[str, Any]) -> None:
    params = {"sync": True, "seconds": 2.0}
    found = pool.run(example("between_graph").train, params, workers=2, ps=1, backend="tensorflow", **options).metrics
    assert found["accuracy"] > 0.5
    assert found["steps"] > 20


@pytest.mark.all(case="`make demo-gang` as its user runs it", covered_by="the same member is killed in a warm pool")
def test_the_demo_loses_a_member_and_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparktrain", "run", "examples/fashion_mnist.py:train", "--workers", "2"]
    params = ["--param", "learning_rate=0.01", "--param", "dropout=0.2", "--param", "kill_at=120"]
    options = ["--metric", "accuracy", "--dir", str(tmp_path), "--name", "demo", "--seed", "1", "--json"]
    done = subprocess.run(
        [*command, *params, *options], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [trial] = json.loads(done.stdout)["trials"]
    assert trial["metrics"]["accuracy"] > 0.84
    [restart] = trial["restarts"]
    assert (restart["kind"], restart["rank"]) == ("killed", 1)
    assert (restart["healed"], restart["steps_lost"], restart["resumed_from_step"]) == (True, 0, 120)
