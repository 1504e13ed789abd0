"""PyTorch, JAX, and Keras on both, on a GPU: slices, errors, and gangs of two that share it.

For an environment that has them with CUDA: docs/development.md names the command.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.state.outcome import FailureKind
from tests.gpu import framework_programs as programs

SLICE_MIB = 4096
HAVE_CUDA = {
    "torch": find_spec("torch") is not None,
    "jax": any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)),
}
NEEDS = {
    name: pytest.mark.skipif(not has_cuda, reason=f"no {name} with CUDA here") for name, has_cuda in HAVE_CUDA.items()
}
FRAMEWORKS = [pytest.param(name, marks=mark) for name, mark in NEEDS.items()]
EQUAL = 1e-5
"""How far a float may be from that of another run: sums on a GPU have no fixed order."""


def sweep(function: Callable[..., Any], xs: list[int], folder: Path, framework: str) -> Any:
    space = {"x": xs, "folder": [str(folder)], "framework": [framework]}
    return st.sweep(
        function, space, metric="y", mode="max", spark=st.local(slots=2), dir=str(folder / "runs"), progress=False,
        gpu_memory=f"{SLICE_MIB}MiB",
    )  # fmt: skip


@pytest.fixture(scope="module")
def pool(gpu: str) -> Iterator[st.Pool]:
    """Two warm agents, which share the GPU."""
    with st.pool(st.local(slots=2), gpu_memory=f"{SLICE_MIB}MiB") as opened:
        yield opened


def run(pool: st.Pool, folder: Path, function: Callable[..., Any], /, **options: Any) -> st.RunResult:
    folder.mkdir(exist_ok=True)
    chosen = {"workers": 2, "seed": 1, "name": "run", "dir": str(folder / "runs"), "progress": False, **options}
    return pool.run(function, chosen.pop("params", {}), **chosen)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_trials_at_a_time_each_have_their_slice(tmp_path: Path, framework: str) -> None:
    result = sweep(programs.side_by_side, [0, 1], tmp_path, framework)
    assert [trial.metrics["y"] for trial in result.trials] == [1.0] * 2
    for trial in result.trials:
        assert trial.metrics["limit"] == pytest.approx(SLICE_MIB, rel=0.02)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_trial_that_wants_more_than_its_slice_fails_alone(tmp_path: Path, framework: str) -> None:
    failed, succeeded = sweep(programs.greedy, [0, 1], tmp_path, framework).trials
    assert (failed.status, failed.generations, failed.error.kind) == ("failed", 1, FailureKind.MEMORY)
    assert (succeeded.status, succeeded.metrics) == ("succeeded", {"y": 1.0})


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_illegal_address_is_the_result_of_its_trial(tmp_path: Path, framework: str) -> None:
    broken, *others = sweep(programs.illegal_address, [0, 1, 2], tmp_path, framework).trials
    assert (broken.status, broken.generations) == ("failed", 1)
    assert broken.error is not None
    assert "as it was" not in broken.error.summary, broken.error.summary
    assert [trial.metrics for trial in others] == [{"y": 1.0}] * 2


@NEEDS["torch"]
def test_members_that_share_a_gpu_exchange_its_tensors_by_gloo(pool: st.Pool, tmp_path: Path) -> None:
    metrics = run(pool, tmp_path, programs.collectives, backend="torch").metrics
    assert metrics == {"total": 9.0, "rows": 3.0, "sent": 3.0}


@NEEDS["torch"]
def test_a_member_alone_has_nccl(pool: st.Pool, tmp_path: Path) -> None:
    assert run(pool, tmp_path, programs.by_nccl, workers=1, backend="torch").metrics == {"y": 1.0}


@NEEDS["torch"]
@pytest.mark.parametrize("rank", [0, 1])
def test_a_gang_of_torch_continues_from_memory_of_the_host(pool: st.Pool, tmp_path: Path, rank: int) -> None:
    plain = run(pool, tmp_path / "plain", programs.learn, backend="torch", params={"folder": str(tmp_path / "plain")})
    folder = tmp_path / "killed"
    params = {"folder": str(folder), "kill_at": programs.KILL_AT, "rank": rank}
    killed = run(pool, folder, programs.learn, backend="torch", params=params)
    assert not plain.restarts
    [restart] = killed.restarts
    assert restart.resumed_from_step in range(11, 15)
    weights = [np.load(path / "weights-0.npy") for path in (tmp_path / "plain", folder)]
    np.testing.assert_allclose(*weights, rtol=0, atol=EQUAL)


@pytest.mark.parametrize(
    ("framework", "function"),
    [
        pytest.param("torch", programs.by_nccl, marks=NEEDS["torch"]),
        pytest.param("jax", programs.by_jax, marks=NEEDS["jax"]),
    ],
)
def test_nccl_between_members_of_one_gpu_fails_at_once_and_says_what_helps(
    pool: st.Pool, tmp_path: Path, framework: str, function: Callable[..., Any]
) -> None:
    with pytest.raises(st.RunFailedError, match=r"two members .* have the same GPU, which NCCL refuses: give each"):
        run(pool, tmp_path, function, backend=framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_keras_trains_on_the_gpu_and_resumes(tmp_path: Path, framework: str) -> None:
    weights = []
    for name, die_at in (("plain", -1), ("killed", 1)):
        folder = tmp_path / name
        folder.mkdir()
        # The processes of a pool may have imported Keras on the other framework.
        result = st.run(
            programs.fit, {"folder": str(folder), "die_at": die_at}, workers=1, dir=str(folder / "runs"), seed=1,
            spark=st.local(slots=1), gpu_memory=f"{SLICE_MIB}MiB", env={"KERAS_BACKEND": framework}, progress=False,
        )  # fmt: skip
        assert result.metrics["generation"] == (1 if die_at < 0 else 2)
        weights.append(np.load(folder / "weights-0.npy"))
    np.testing.assert_allclose(*weights, rtol=0, atol=EQUAL)


@NEEDS["torch"]
def test_a_gang_of_keras_on_torch_shares_a_gpu(tmp_path: Path) -> None:
    result = st.run(
        programs.fit, {"folder": str(tmp_path)}, workers=2, backend="torch", dir=str(tmp_path / "runs"), seed=1,
        spark=st.local(slots=2), gpu_memory=f"{SLICE_MIB}MiB", env={"KERAS_BACKEND": "torch"}, progress=False,
    )  # fmt: skip
    assert not result.restarts
    np.testing.assert_array_equal(*(np.load(tmp_path / f"weights-{rank}.npy") for rank in range(2)))
