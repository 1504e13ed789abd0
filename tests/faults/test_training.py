"""A killed training ends with the weights of an undisturbed one, and a member that hangs is replaced."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.config.option_catalog import BackendName
from sparktrain.driver.engines import local_batch
from sparktrain.state.gangs import timeouts
from tests.faults.growing import grow
from tests.faults.learning import EPOCHS, EXAMPLES, examples_of, learn, table
from tests.support.fits import FITS, HOROVOD, JAX, Fit

OTHER_DATA = pytest.mark.all(
    case="killed training alone, on arrays, and on TensorFlow's ring",
    covered_by="on rows of `data=` and Horovod's ring",
)
FROM_MEMORY = pytest.mark.all(
    case="a killed member of either ring, resumed from memory",
    covered_by="a killed agent of TensorFlow's ring; `examples/test_gangs`: a killed member of Horovod's ring",
)
OTHER_GROWTH = pytest.mark.all(
    case="growth on TensorFlow's collectives, and with local steps", covered_by="on Horovod's ring"
)

pytestmark = pytest.mark.timeout(240)


def trained(
    pool: st.Pool,
    folder: Path,
    workers: int,
    backend: str,
    min_workers: int | None = None,
    healing: bool = True,
    **faults: Any,
) -> tuple[st.RunResult, list[Any]]:
    """Train; return the result and the weights of the chief."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    params = {"folder": str(notes), "kill_at": None, "hang_at": None, **faults}
    data = {"train": table()} if faults.get("rows") else {}
    result = pool.run(
        learn, params, workers=workers, backend=backend, dir=str(folder), name="run", seed=1, progress=False,
        hang_timeout="3s", data=data, min_workers=min_workers, healing=healing,
    )  # fmt: skip
    with np.load(notes / "weights.npz") as weights:
        return result, [weights[name] for name in weights.files]


@pytest.fixture(scope="module")
def rings(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """The weights of an undisturbed gang of two that trains on rows, by its backend: checkpoints do not change them."""

    @cache
    def weights(backend: str) -> list[Any]:
        folder = tmp_path_factory.mktemp(backend)
        undisturbed, trained_weights = trained(pool, folder, 2, backend, rows=True)
        assert not undisturbed.restarts
        assert_each_row_once(folder / "notes")
        return trained_weights

    return weights


@pytest.mark.parametrize(
    ("workers", "backend", "rows"),
    [
        pytest.param(1, "none", False, marks=OTHER_DATA),
        pytest.param(2, "tensorflow", False, marks=OTHER_DATA),
        pytest.param(2, "horovod", False, marks=OTHER_DATA),
        pytest.param(1, "none", True, marks=OTHER_DATA),
        (2, "horovod", True),
    ],
)
def test_a_killed_training_ends_with_the_same_weights(
    pool: st.Pool, tmp_path: Path, rings: Callable[[str], list[Any]], workers: int, backend: str, rows: bool
) -> None:
    if rows and workers == 2:
        weights = rings(backend)
    else:
        whole, weights = trained(pool, tmp_path / "whole", workers, backend, rows=rows)
        assert not whole.restarts
        assert_each_row_once(tmp_path / "whole" / "notes")
    killed, resumed = trained(pool, tmp_path / "killed", workers, backend, kill_at=14, rows=rows)
    [restart] = killed.restarts
    if restart.healed:
        assert (restart.resumed_from_step, restart.steps_lost) == (14, 0)
    else:
        assert restart.resumed_from_step in (8, 12)
    assert restart.healed is (backend == "horovod")
    for one, other in zip(weights, resumed, strict=True):
        if workers == 1:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    assert_each_row_once(tmp_path / "killed" / "notes")


def assert_each_row_once(notes: Path) -> None:
    assert [sorted(epoch) for epoch in examples_of(notes)] == [list(range(EXAMPLES))] * EPOCHS


@pytest.mark.parametrize(
    ("backend", "victim"),
    [("tensorflow", "agent"), *(pytest.param(ring, "member", marks=FROM_MEMORY) for ring in ("horovod", "tensorflow"))],
)
def test_a_gang_resumes_from_the_memory_of_the_members_that_are_left(
    pool: st.Pool, tmp_path: Path, rings: Callable[[str], list[Any]], backend: str, victim: str
) -> None:
    """No checkpoint is in the store. Another agent takes the place of a killed one, and rank 0 sends it the state."""
    often = {"memory": "0.01s", "every": 1000, "rows": True, "dropout": 0.0}
    weights = rings(backend)
    killed, resumed = trained(pool, tmp_path / "killed", 2, backend, kill_at=14, victim=victim, healing=False, **often)
    [restart] = killed.restarts
    # The members of a host take turns: a killed agent may have held the newest snapshot, and another the one before.
    newest = 12 if victim == "member" else 11
    assert restart.resumed_from_step in range(newest, 15)
    assert restart.steps_lost in range(15 - newest)
    assert not list((tmp_path / "killed" / "run" / "trials").rglob("manifest*"))
    for one, other in zip(weights, resumed, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    assert_each_row_once(tmp_path / "killed" / "notes")


@pytest.mark.all(
    case="rows come once over a killed agent, a killed executor",
    covered_by="over a killed member; `process/test_failures`",
)
@pytest.mark.parametrize("victim", ["agent", "executor"])
def test_rows_come_once_in_an_epoch_over_kills(request: pytest.FixtureRequest, tmp_path: Path, victim: str) -> None:
    engine = request.getfixturevalue("spark") if victim == "executor" else st.local(slots=2)
    with st.pool(engine, preload=["tensorflow", "keras"]) as pool:
        killed, _ = trained(pool, tmp_path / "killed", 2, "tensorflow", kill_at=14, rows=True, victim=victim)
    assert len(killed.restarts) == 1
    assert_each_row_once(tmp_path / "killed" / "notes")


@pytest.mark.all(
    case="rows come once in an epoch of a gang that forms smaller",
    covered_by="a gang that forms smaller repeats no step; `training/test_resume`: rows of gangs that shrink",
)
def test_rows_come_once_in_an_epoch_of_a_gang_that_forms_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot of the killed agent is lost for good, and the gang waits for no other."""
    monkeypatch.setattr(timeouts, "REPLACEMENT_S", 0.0)
    monkeypatch.setattr(local_batch.Restarts, "lost", lambda self, slot, now: True)
    with st.pool(st.local(slots=2), preload=["tensorflow", "keras"]) as pool:
        smaller, _ = trained(
            pool, tmp_path, 2, "tensorflow", min_workers=1, kill_at=18, rows=True, victim="agent", dropout=0.0
        )  # fmt: skip
    [restart] = smaller.restarts
    assert restart.resumed_from_step == 16, "in the middle of the second epoch, which has 12 steps of two members"
    assert sorted({path.stem[:5] for path in (tmp_path / "notes").glob("*.json")}) == ["01-0-", "01-1-", "02-0-"]
    assert_each_row_once(tmp_path / "notes")


@pytest.mark.parametrize(
    ("fit", "backend", "local_steps", "keeps"),
    [
        (FITS[HOROVOD], "horovod", None, True),
        pytest.param(FITS[HOROVOD], "horovod", None, False, marks=OTHER_GROWTH),
        pytest.param(FITS[HOROVOD], "tensorflow", None, False, marks=OTHER_GROWTH),
        pytest.param(FITS[HOROVOD], "horovod", 3, False, marks=OTHER_GROWTH),
        pytest.param(FITS[HOROVOD], "torch", None, False, marks=pytest.mark.torch),
        pytest.param(FITS[JAX], "jax", None, False, marks=OTHER_GROWTH),
        pytest.param(FITS[JAX], "jax", None, True, marks=OTHER_GROWTH),
    ],
    indirect=["fit"],
    ids=lambda value: getattr(value, "name", None),
    scope="module",
)
def test_a_gang_that_is_smaller_grows_when_an_agent_is_there_again(
    pool: st.Pool,
    fit: Fit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: BackendName,
    local_steps: int | None,
    keeps: bool,
) -> None:
    """`keeps`: the other member keeps its process while it is alone."""
    monkeypatch.setattr(timeouts, "REPLACEMENT_S", 0.0)
    monkeypatch.setattr(timeouts, "COOLDOWN_S", 2.0)
    monkeypatch.setattr(local_batch.Restarts, "lost", _comes_later)
    params = {"folder": str(tmp_path)} | ({"last": None} if keeps else {})
    result = pool.run(
        growing(backend), params, workers=2, min_workers=1, backend=backend,
        dir=str(tmp_path / "runs"), local_steps=local_steps, progress=False, healing=keeps, env=dict(fit.env),
    )  # fmt: skip
    lost, grown = result.restarts
    assert not lost.paused
    assert (lost.healed, lost.members) == (keeps, 1 if keeps else None)
    assert (grown.healed, grown.members) == (keeps, None)
    assert (grown.paused, grown.steps_lost, grown.cause) == (True, 0, "grows to 2 members: agents are there again")
    steps = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.glob("*.jsonl")
    }
    kept = {"1-0": {1, 2}, "1-1": {2}}
    restarted = {"1-0": {2}, "1-1": {2}, "2-0": {1}, "3-0": {2}, "3-1": {2}}
    assert {name: {size for _, _, size in rows} for name, rows in steps.items()} == (kept if keeps else restarted)
    chiefs = steps["1-0"] if keeps else steps["2-0"] + steps["3-0"]
    assert [step for _, step, _ in chiefs] == list(range(chiefs[0][1], chiefs[-1][1] + 1)), "none twice, none lost"


def growing(backend: str) -> Callable[..., Any]:
    """The training of each backend that shrinks and grows."""
    if backend != "torch":
        return grow
    from tests.torch.looping import grow as grow_a_loop

    return grow_a_loop


@pytest.mark.all(case="a member that dies as soon as it has joined", covered_by="a gang that grows on Horovod's ring")
def test_a_member_that_dies_as_soon_as_it_has_joined_costs_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "REPLACEMENT_S", 0.0)
    monkeypatch.setattr(timeouts, "COOLDOWN_S", 2.0)
    monkeypatch.setattr(local_batch.Restarts, "lost", _comes_later)
    with st.pool(st.local(slots=2), preload=["tensorflow", "keras", "horovod.tensorflow"]) as pool:
        result = pool.run(
            grow, {"folder": str(tmp_path), "again": True, "last": 5}, workers=2, min_workers=1, backend="horovod",
            dir=str(tmp_path / "runs"), progress=False, healing=False,
        )  # fmt: skip
    assert result.metrics["size"] == 2
    assert [restart.paused for restart in result.restarts] == [False, True, False, True]
    assert all(restart.steps_lost <= 1 for restart in result.restarts[1:])


def _comes_later(restarts: local_batch.Restarts, slot: int, now: float) -> bool:
    """Capacity comes back some seconds after a loss."""
    restarts._lives[slot].due = now + 4.0
    return True


def test_a_member_without_progress_is_named_and_replaced(pool: st.Pool, tmp_path: Path) -> None:
    result, _ = trained(pool, tmp_path, 2, "horovod", hang_at=30)
    [restart] = result.restarts
    assert restart.kind == "hang"
    assert "has finished no training step for" in restart.cause
    [log] = tmp_path.rglob(f"generation-1/rank-{restart.rank}/log.txt")
    assert re.search(r'File ".*learning.py", line \d+ in ', log.read_text()), "where it hangs"
