"""Horovod's elastic programs, unchanged, in gangs on the local engine: a restarted gang resumes at the last commit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.testing import local_context
from tests.training import elastic_programs as programs
from tests.training import local_gang

ELASTIC_FIT = pytest.mark.all(
    case="an elastic `fit` of Horovod that loses a member", covered_by="an elastic loop that loses a member"
)

EQUAL = 1e-6
"""How far a float may be from that of one process: the members' sums have another order."""


@pytest.fixture(scope="module")
def pool(gang_pool: Any) -> Any:
    return gang_pool


@pytest.mark.parametrize("function", [programs.loop, pytest.param(programs.fit, marks=ELASTIC_FIT)])
def test_a_restarted_gang_resumes_at_the_last_commit(pool: Any, tmp_path: Path, function: Any) -> None:
    weights, _ = local_gang.train_alone()
    result = pool.run(
        function, {"folder": str(tmp_path)}, workers=2, backend="horovod", dir=str(tmp_path / "runs"), progress=False
    )
    [restart] = result.restarts
    assert restart.resumed_from_step == 1, "the number of the commit"
    assert result.metrics["epochs"] == local_gang.EPOCHS
    for rank in range(2):
        member = np.load(tmp_path / f"rank-{rank}.npz")
        np.testing.assert_allclose(member["weights"], weights, rtol=0, atol=EQUAL)
        assert member["seen"].tolist() == list(range(local_gang.EPOCHS)), "no epoch twice"
        assert member["resets"].tolist() == [1], "called once, with the state of the commit"


def test_a_state_returns_to_its_last_commit(tmp_path: Path) -> None:
    with local_context(directory=tmp_path) as ctx:
        assert ctx.call(programs.values) == {"rank": 0.0}
    assert list(ctx.saved_steps) == [1]
