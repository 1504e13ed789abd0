"""A gang that loses a member ends with the bits of an undisturbed one, also in what each member has of its own."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.faults.normalizing import normalize

pytestmark = pytest.mark.timeout(240)

OTHERS = pytest.mark.all(
    case="moving averages and metrics of each member from the store, by `ctx.shard`, after the death of the chief, or "
    "of two members",
    covered_by="from memory, on plain arrays, and after the death of another member",
)
Members = list[tuple[dict[str, Any], dict[str, list[float]]]]
"""By rank: the variables by path, and the history of `fit`."""


def trained(pool: st.Pool, folder: Path, **faults: Any) -> tuple[st.RunResult, Members]:
    notes = folder / "notes"
    notes.mkdir(parents=True)
    params = {"folder": str(notes), "kills": [], "victim": 1, "every": None, "memory": None, "sharded": False, **faults}
    result = pool.run(
        normalize, params, workers=2, backend="horovod", dir=str(folder), name="run", seed=1, progress=False
    )
    members = []
    for rank in range(2):
        with np.load(notes / f"member-{rank}.npz") as stored:
            variables = {name: stored[name] for name in stored.files}
        members.append((variables, json.loads((notes / f"history-{rank}.json").read_text())))
    return result, members


@pytest.fixture(scope="module")
def undisturbed(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Members]:
    """The members of a gang without a loss, by whether it trains on `ctx.shard`."""

    @cache
    def members(sharded: bool) -> Members:
        result, trained_members = trained(pool, tmp_path_factory.mktemp("undisturbed"), sharded=sharded)
        assert not result.restarts
        return trained_members

    return members


@pytest.mark.parametrize(
    ("sharded", "victim", "losses", "often"),
    [
        (False, 1, 1, {"memory": "0.01s"}),
        pytest.param(False, 0, 2, {"memory": "0.01s"}, marks=OTHERS),
        pytest.param(True, 1, 2, {"memory": "0.01s"}, marks=OTHERS),
        pytest.param(False, 1, 2, {"every": 2}, marks=OTHERS),
        pytest.param(True, 0, 2, {"every": 2}, marks=OTHERS),
    ],
)
def test_a_gang_ends_with_the_bits_of_an_undisturbed_one(
    pool: st.Pool,
    tmp_path: Path,
    undisturbed: Callable[[bool], Members],
    sharded: bool,
    victim: int,
    losses: int,
    often: dict[str, Any],
) -> None:
    """Kills are in the middle of the second epoch, and of both."""
    epoch = 8 if not sharded else 4
    kills = [epoch // 2 + 1, epoch + epoch // 2][-losses:]
    result, members = trained(pool, tmp_path, kills=kills, victim=victim, sharded=sharded, **often)
    assert [restart.healed for restart in result.restarts] == [False] * losses
    for (variables, history), (expected, expected_history) in zip(members, undisturbed(sharded), strict=True):
        assert {name for name, value in variables.items() if not np.array_equal(value, expected[name])} == set()
        assert history == expected_history
