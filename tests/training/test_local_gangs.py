"""Gangs that average weights after some steps, on the local engine: rings and parameter servers, through losses too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.training import local_gang, local_programs
from tests.training.local_programs import EPOCHS, STEPS

ON_HOROVOD = pytest.mark.all(case="averages on Horovod's ring", covered_by="on TensorFlow's ring")
ENDS_OF_EPOCHS = pytest.mark.all(case="an average at the ends of epochs alone", covered_by="after three steps")
OTHER_KILLS = pytest.mark.all(
    case="a kill on Horovod's ring, and where memory has the checkpoint", covered_by="a kill on TensorFlow's ring"
)
ALONE = pytest.mark.all(
    case="one worker with servers, in mixed precision too",
    covered_by="a ring in mixed precision; `training/test_ps_model`; two workers that lose one",
)

NOT_KILLED = pytest.mark.all(
    case="two workers with a server that lose none", covered_by="they lose a worker, which starts again"
)

EQUAL = 1e-6
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def pool(gang_pool: st.Pool) -> st.Pool:
    return gang_pool


def train(pool: st.Pool, folder: Path, params: dict[str, Any] | None = None, **options: Any) -> st.RunResult:
    folder.mkdir(exist_ok=True)
    chosen = {"workers": 2, "backend": "tensorflow", **options}
    return pool.run(
        local_programs.train, {"folder": str(folder), **(params or {})}, dir=str(folder / "runs"), progress=False,
        seed=1, **chosen,
    )  # fmt: skip


def of(folder: Path, rank: int, name: str = "weights") -> Any:
    with np.load(folder / f"rank-{rank}.npz") as found:
        return found[name]


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("horovod", marks=ON_HOROVOD)])
def test_an_average_after_each_step_is_one_process_also_with_momentum(
    pool: st.Pool, tmp_path: Path, backend: str
) -> None:
    """Momentum is linear in gradients: its mean over members is the momentum of the mean."""
    result = train(pool, tmp_path, {"momentum": 0.9}, backend=backend, local_steps=1)
    assert result.notices == ()
    np.testing.assert_array_equal(of(tmp_path, 0), of(tmp_path, 1))
    np.testing.assert_allclose(of(tmp_path, 0), local_programs.train_alone(), rtol=0, atol=EQUAL)


@pytest.mark.parametrize("local", [3, pytest.param(100, marks=ENDS_OF_EPOCHS)])
def test_validation_and_the_end_of_a_fit_have_one_model(pool: st.Pool, tmp_path: Path, local: int) -> None:
    result = train(pool, tmp_path, {"momentum": 0.9}, local_steps=local)
    for name in ("weights", "validated", "val_loss"):
        np.testing.assert_array_equal(of(tmp_path, 0, name), of(tmp_path, 1, name))
    assert len(of(tmp_path, 0, "validated")) == EPOCHS
    stored = result.load_model()
    np.testing.assert_array_equal(local_gang.flat(stored), of(tmp_path, 0))
    assert "apply" not in vars(stored.optimizer), "the stored model has the plain optimizer"


@pytest.fixture(scope="module")
def alone(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one process that has trained with momentum."""
    folder = tmp_path_factory.mktemp("alone")
    train(pool, folder, {"momentum": 0.9}, workers=1, backend="none")
    return folder


AVERAGED = {epoch * STEPS + step for epoch in range(EPOCHS) for step in (3, 6, STEPS)}
"""The steps after which members with local_steps=3 are equal."""
MEMORY = {"memory_checkpoint": "0.001s", "checkpoint_every": None}


@pytest.mark.parametrize(
    ("backend", "how"),
    [
        pytest.param("tensorflow", MEMORY, marks=OTHER_KILLS),
        ("tensorflow", {"checkpoint_every": 2}),
        pytest.param("horovod", MEMORY, marks=OTHER_KILLS),
        pytest.param("horovod", {"checkpoint_every": "0.01s"}, marks=OTHER_KILLS),
    ],
    ids=["memory", "steps", "horovod-memory", "horovod-time"],
)
def test_a_killed_gang_resumes_at_an_average_and_counts_steps_from_there(
    pool: st.Pool, tmp_path: Path, backend: str, how: dict[str, Any]
) -> None:
    train(pool, tmp_path / "whole", how, backend=backend, local_steps=3)
    params = {**how, "kill_at": 2 * STEPS + 5}
    killed = train(pool, tmp_path / "killed", params, backend=backend, local_steps=3)
    [restart] = killed.restarts
    assert restart.resumed_from_step in AVERAGED
    assert restart.resumed_from_step > STEPS
    np.testing.assert_array_equal(of(tmp_path / "killed", 0), of(tmp_path / "killed", 1))
    np.testing.assert_allclose(of(tmp_path / "killed", 0), of(tmp_path / "whole", 0), rtol=0, atol=EQUAL)


def test_members_skip_steps_of_their_own_in_mixed_precision(pool: st.Pool, tmp_path: Path) -> None:
    train(pool, tmp_path, {"policy": "mixed_float16"}, local_steps=3)
    np.testing.assert_array_equal(of(tmp_path, 0), of(tmp_path, 1))


@ALONE
@pytest.mark.parametrize(("ps", "policy"), [(2, "float32"), (1, "mixed_float16")])
def test_one_worker_with_servers_trains_what_it_trains_alone(
    pool: st.Pool, tmp_path: Path, alone: Path, ps: int, policy: str
) -> None:
    params = {"momentum": 0.9, "policy": policy}
    if policy != "float32":
        alone = tmp_path / "alone"
        train(pool, alone, params, workers=1, backend="none")
    options = {"workers": 1, "ps": ps, "ps_mode": "local-sgd", "local_steps": 3}
    train(pool, tmp_path / "served", params, backend="parameter-server", **options)
    np.testing.assert_array_equal(of(tmp_path / "served", 0), of(alone, 0))


def test_a_chief_that_is_lost_resumes_with_the_history_of_its_optimizer(
    pool: st.Pool, tmp_path: Path, alone: Path
) -> None:
    params: dict[str, Any] = {"momentum": 0.9, "kill_at": STEPS + 5, "victim": 0, "checkpoint_every": 2}
    options = {"workers": 1, "ps": 1, "ps_mode": "local-sgd", "local_steps": 3}
    result = train(pool, tmp_path / "served", params, backend="parameter-server", **options)
    [restart] = result.restarts
    assert restart.resumed_from_step
    np.testing.assert_array_equal(of(tmp_path / "served", 0), of(alone, 0))


@pytest.mark.parametrize("kill_at", [STEPS + 5, pytest.param(None, marks=NOT_KILLED)])
def test_two_workers_with_servers_train_one_model(pool: st.Pool, tmp_path: Path, kill_at: int | None) -> None:
    result = train(
        pool, tmp_path, {"kill_at": kill_at}, ps=1, ps_mode="local-sgd", local_steps=3, backend="parameter-server"
    )
    assert [each.alone for each in result.restarts] == [True] * (kill_at is not None)
    # Not the chief's first epoch: by its end the other worker may have trained for longer, and little is left to learn.
    untrained = local_programs.loss_of_rank_0_untrained()
    assert of(tmp_path, 0, "val_loss")[-1] < 0.8 * untrained, "the gang has not learned"
    assert np.abs(of(tmp_path, 0) - of(tmp_path, 1)).max() < 0.5, "they train one model"


def test_a_program_for_horovod_is_refused(pool: st.Pool, tmp_path: Path) -> None:
    with pytest.raises(st.RunFailedError, match="programs for Horovod average gradients"):
        pool.run(
            local_gang.train_by_horovod, {"folder": str(tmp_path)}, workers=2, backend="horovod", local_steps=2,
            dir=str(tmp_path / "runs"), progress=False,
        )  # fmt: skip


@pytest.mark.all(
    case="a sweep of gangs that average weights",
    covered_by="runs of such gangs; `examples/test_gangs`: a sweep of gangs",
)
def test_a_sweep_of_gangs_averages_weights(pool: st.Pool, tmp_path: Path) -> None:
    space = {"folder": [str(tmp_path)], "momentum": [0.0]}
    result = pool.sweep(
        local_programs.train, space, metric="loss", mode="min", workers_per_trial=2, backend="tensorflow",
        local_steps=3, dir=str(tmp_path / "runs"), progress=False,
    )  # fmt: skip
    assert result.trials[0].status == "succeeded"
    np.testing.assert_array_equal(of(tmp_path, 0), of(tmp_path, 1))
