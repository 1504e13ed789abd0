"""Programs of horovod.torch in gangs of PyTorch, with the wheel of `make torch`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sparktrain as st
from tests.torch import ddp_programs, horovod_programs

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two agents on this machine."""
    with st.pool(st.local(slots=2), preload=["torch"]) as opened:
        yield opened


@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_for_horovodrun_trains_what_one_process_trains(pool: st.Pool, tmp_path: Path, workers: int) -> None:
    weights, _ = ddp_programs.train_alone()
    result = pool.run(
        horovod_programs.train, {"folder": str(tmp_path)}, workers=workers, backend="torch",
        dir=str(tmp_path / "runs"), progress=False,
    )  # fmt: skip
    assert result.metrics == {"size": workers, "total": sum(range(1, workers + 1))}
    for rank in range(workers):
        np.testing.assert_allclose(np.load(tmp_path / f"rank-{rank}.npz")["weights"], weights, rtol=0, atol=1e-6)


def test_a_killed_member_costs_a_restart(pool: st.Pool, tmp_path: Path) -> None:
    result = pool.run(horovod_programs.lose_a_member, {}, workers=2, backend="torch", dir=str(tmp_path), progress=False)
    assert result.metrics == {"total": 20.0, "generation": 2.0}
    [restart] = result.restarts
    assert restart.rank == 1
    assert "SIGKILL" in restart.cause


def test_an_elastic_program_resumes_at_its_last_commit(pool: st.Pool, tmp_path: Path) -> None:
    weights, _ = ddp_programs.train_alone()
    result = pool.run(
        horovod_programs.elastic, {"folder": str(tmp_path)}, workers=2, backend="torch", dir=str(tmp_path / "runs"),
        progress=False,
    )  # fmt: skip
    assert result.metrics == {"reset at": 1, "epoch": ddp_programs.EPOCHS, "seen": 0}
    [restart] = result.restarts
    assert restart.resumed_from_step == 1
    for rank in range(2):
        np.testing.assert_allclose(np.load(tmp_path / f"rank-{rank}.npz")["weights"], weights, rtol=0, atol=1e-6)


def test_the_elastic_sampler_is_refused_with_what_to_write(pool: st.Pool, tmp_path: Path) -> None:
    with pytest.raises(st.RunFailedError, match=r"hvd\.elastic\.ElasticSampler is not there: .*ctx\.shard\(loader\)"):
        pool.run(horovod_programs.use_the_sampler, {}, workers=1, backend="torch", dir=str(tmp_path), progress=False)


def test_a_gang_of_another_backend_is_refused_with_the_one_to_pass(pool: st.Pool, tmp_path: Path) -> None:
    with pytest.raises(
        st.RunFailedError, match=r"hvd.init\(\) of horovod.torch needs a gang of PyTorch.*'none'.* torch\)"
    ):
        pool.run(horovod_programs.call_init, {}, workers=2, backend="none", dir=str(tmp_path), progress=False)
