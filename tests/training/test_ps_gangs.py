"""Gangs with parameter servers of sparktrain's own, on the local engine: nursery, agents and zygotes as users have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.training import local_gang, served_programs

OTHER_MODES = pytest.mark.all(
    case="a killed worker and server of `sync` and of `local-sgd`",
    covered_by="a killed worker and server of `async`; `training/test_local_gangs`: a killed worker of `local-sgd`",
)
OTHER_MEMBERS = pytest.mark.all(
    case="a member that stops, in the other combinations", covered_by="one member that stops in each mode"
)

EQUAL = 1e-6
"""How far a float may be from that of one process: the sums of members have another order."""


@pytest.fixture(scope="module")
def alone() -> tuple[Any, list[float]]:
    """The weights, and the loss of each epoch, of one process on all rows."""
    return local_gang.train_alone()


@pytest.fixture(scope="module")
def pool(gang_pool: st.Pool) -> st.Pool:
    return gang_pool


@pytest.mark.parametrize(("workers", "ps", "mode"), [(2, 1, "sync"), (1, 2, "async"), (1, 1, "staleness-aware")])
def test_a_served_gang_trains_what_one_process_trains(
    pool: st.Pool, tmp_path: Path, alone: tuple[Any, list[float]], workers: int, ps: int, mode: Any
) -> None:
    weights, losses = alone
    result = pool.run(
        served_programs.train, {"folder": str(tmp_path), "workers": workers}, workers=workers, ps=ps, ps_mode=mode,
        backend="parameter-server", dir=str(tmp_path / "runs"), progress=False,
    )  # fmt: skip

    assert result.restarts == ()
    chief = np.load(tmp_path / "rank-0.npz")
    np.testing.assert_allclose(chief["weights"], weights, rtol=0, atol=EQUAL)
    if workers == 1:
        np.testing.assert_allclose(chief["losses"], losses, rtol=0, atol=EQUAL)


@pytest.mark.parametrize(
    ("mode", "whom"),
    [
        ("async", "worker"),
        ("async", "ps"),
        *(pytest.param(mode, whom, marks=OTHER_MODES) for mode in ("sync", "local-sgd") for whom in ("worker", "ps")),
    ],
)
def test_a_killed_member_starts_again_alone_while_the_others_train(
    pool: st.Pool, tmp_path: Path, whom: str, mode: Any
) -> None:
    result = pool.run(
        served_programs.lose, {"folder": str(tmp_path), "whom": whom}, workers=2, ps=1, ps_mode=mode,
        backend="parameter-server", dir=str(tmp_path / "runs"), progress=False,
        local_steps=3 if mode == "local-sgd" else None,
    )  # fmt: skip

    [restart] = result.restarts
    assert (restart.rank, restart.alone) == ({"worker": 1, "ps": 2}[whom], True)
    assert result.metrics["epochs"] == 30
    losses = np.load(tmp_path / "rank-0.npz")["losses"]
    assert losses[-1] < 0.5 * losses[0], "the gang has not learned"
    other = np.load(tmp_path / "rank-1.npz")["weights"]
    assert np.abs(np.load(tmp_path / "rank-0.npz")["weights"] - other).max() < 0.5, "they train one model"


def run(pool: st.Pool, function: Any, tmp_path: Path, **options: Any) -> st.RunResult:
    chosen = {"workers": 1, "ps": 1, "params": {"folder": str(tmp_path)}} | options
    return pool.run(
        function, chosen.pop("params"), backend="parameter-server", dir=str(tmp_path / "runs"), progress=False, **chosen
    )


def test_a_lost_gang_resumes_with_the_history_of_its_optimizer(
    pool: st.Pool, tmp_path: Path, alone: tuple[Any, list[float]]
) -> None:
    result = run(pool, served_programs.resume, tmp_path)
    [restart] = result.restarts
    assert not restart.alone
    assert restart.resumed_from_step
    np.testing.assert_allclose(np.load(tmp_path / "rank-0.npz")["weights"], alone[0], rtol=0, atol=EQUAL)


@pytest.mark.parametrize(
    ("mode", "who"),
    [
        ("async", "chief"),
        ("sync", "worker"),
        pytest.param("async", "worker", marks=OTHER_MEMBERS),
        pytest.param("sync", "chief", marks=OTHER_MEMBERS),
    ],
)
def test_one_member_that_stops_stops_all(pool: st.Pool, tmp_path: Path, who: str, mode: Any) -> None:
    result = run(pool, served_programs.stop, tmp_path, params={"who": who}, workers=2, ps_mode=mode)
    assert result.metrics["epochs"] < 2000


def test_weights_that_are_changed_between_two_fits_reach_the_servers(pool: st.Pool, tmp_path: Path) -> None:
    run(pool, served_programs.refine, tmp_path)
    pool.run(served_programs.refine, {"folder": str(tmp_path)}, workers=1, dir=str(tmp_path / "runs"), progress=False)
    one, served = (np.load(tmp_path / f"size-{size}.npz")["weights"] for size in (1, 2))
    np.testing.assert_allclose(served, one, rtol=0, atol=EQUAL)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("constraint", "has a constraint, and parameter servers apply none"),
        ("frozen", "without variables"),
        ("scale", "scales losses"),
        ("ema", "use_ema=True"),
        ("norm", "global_clipnorm=1, and each of ps=2 servers"),
        ("plain", "does not know the gang"),
        ("fp16", "compression='fp16'"),
        ("allreduce", "its members do not wait for each other"),
        ("tape", "its servers apply gradients"),
        ("strategy", "replace that line by ctx.distribute"),
        ("warmup", "warmup changes the learning rate"),
        ("rate", "was changed from 0.1 to 0.05"),
    ],
)
def test_what_servers_cannot_train_is_refused(pool: st.Pool, tmp_path: Path, what: str, words: str) -> None:
    with pytest.raises(st.RunFailedError) as raised:
        run(pool, served_programs.wrong, tmp_path, params={"what": what}, ps=2)
    assert words in str(raised.value)
