"""Gangs of PyTorch with a model that members hold in parts: they resume from the parts, on any number of members."""

import json
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.torch import copy_checkpoint, load_checkpoint
from sparktrain.training.checkpoint import training_state
from tests.torch import sharded_programs
from tests.torch.parts import write_part
from tests.torch.test_split_state import plain

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
STEPS = 8
EQUAL = 1e-6
"""How far a loss may be from that of another number of members: their sums have another order."""


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two warm agents on this machine."""
    with st.pool(st.local(slots=2), preload=["torch"]) as opened:
        yield opened


def run(pool: st.Pool, folder: Path, function: Any = sharded_programs.train, /, **params: Any) -> st.RunResult:
    params = {"folder": str(folder), "steps": STEPS, **params}
    return pool.run(function, params, workers=2, dir=str(folder / "runs"), name="run", progress=False)


def weights(folder: Path) -> list[dict[str, torch.Tensor]]:
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def whole(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """The weights of a gang that loses no member."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(pool, folder).metrics["from"] == 0
    return weights(folder)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_gang_resumes_from_the_parts_of_its_members(
    pool: st.Pool, tmp_path: Path, whole: list[dict[str, torch.Tensor]], rank: int
) -> None:
    result = run(pool, tmp_path, kill_at=5, rank=rank)
    [restart] = result.restarts
    assert (restart.rank, restart.resumed_from_step, result.metrics["from"]) == (rank, 4, 4)
    for found, expected in zip(weights(tmp_path), whole, strict=True):
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    copied = tmp_path / "copy"
    assert copy_checkpoint(str(tmp_path / "runs" / "run"), copied) == STEPS
    model = plain()
    load_checkpoint(copied, model=model)
    assert all(torch.equal(weight, whole[0][name]) for name, weight in model.state_dict().items())
    with pytest.raises(SpecError, match="exists: pass a new one"):
        copy_checkpoint(str(tmp_path / "runs" / "run"), copied)
    with pytest.raises(SpecError, match=r"trial \(1\) must be one of the 1 of "):
        copy_checkpoint(str(tmp_path / "runs" / "run"), tmp_path / "other", trial=1)
    names = {re.sub(r"^\d+-\w+\.", "", path.name) for path in tmp_path.rglob("data/*")}
    assert names == {
        *("slices-0000.json", "part-0000-00000.safetensors", "state.json", "tensors-00000.safetensors"),
        *("slices-0001.json", "part-0001-00000.safetensors"),
    }


@pytest.mark.parametrize(
    ("moment", "rank", "resumed"),
    [
        ("captured", 1, {2}),
        ("half written", 0, {2}),
        ("written", 1, {2}),
        ("handed over", 0, {2, 4}),  # the agents may store both parts
        ("handed over", 1, {2, 4}),
        ("answered", 0, {4}),
    ],
)
def test_a_kill_at_each_moment_of_a_save_leaves_the_last_whole_one(
    pool: st.Pool, tmp_path: Path, whole: list[dict[str, torch.Tensor]], moment: str, rank: int, resumed: set[int]
) -> None:
    result = run(pool, tmp_path, kill_at=4, rank=rank, moment=moment)
    [restart] = result.restarts
    assert restart.rank == rank
    assert restart.resumed_from_step in resumed
    assert result.metrics["from"] == restart.resumed_from_step
    for found, expected in zip(weights(tmp_path), whole, strict=True):
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_a_model_is_saved_after_an_evaluation(pool: st.Pool, tmp_path: Path) -> None:
    """Then its parameters are whole, where one call of `fully_shard` has all of them."""
    pool.run(sharded_programs.evaluate_and_save, workers=2, dir=str(tmp_path), name="run", progress=False)
    assert copy_checkpoint(str(tmp_path / "run"), tmp_path / "copy") == 2
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = sharded_programs.optimizer_of(model)
    load_checkpoint(tmp_path / "copy", model=model, optimizer=optimizer)
    assert all(slots["exp_avg"].any() for slots in optimizer.state.values())


def test_a_save_of_rank_0_alone_is_told(pool: st.Pool, tmp_path: Path) -> None:
    """By then the other one has reported that it has returned."""
    problem = r"rank 1 on \S+ has returned from the training function and has not saved its part; members that hold"
    with pytest.raises(st.RunFailedError, match=f"step 5 was not checkpointed: {problem}"):
        run(pool, tmp_path, sharded_programs.train_with_a_guard, steps=5)
    log = next((tmp_path / "runs").rglob("rank-0/log.txt")).read_text()
    assert log.count("step 1 is still being checkpointed, and step 2 is due") == 1
    assert "members that hold parts of a model must all call ctx.checkpoint.save(), without `if ctx.rank == 0`" in log
    assert log.count("torch.save() got a model that members hold in parts (DTensor), and writes the part of this") == 1
    assert log.count("on every member, without `if rank == 0`: ctx.checkpoint.save(step, model, optimizer), or") == 1
    blocked_s = json.loads((tmp_path / "blocked.json").read_text())
    assert blocked_s[1] >= 3.0 > sum(blocked_s[2:]), "only one save waits for members that save nothing"


def test_an_optimizer_of_parts_that_cannot_be_saved_is_refused_before_training(pool: st.Pool, tmp_path: Path) -> None:
    with pytest.raises(st.RunFailedError, match=r"ZeroRedundancyOptimizer cannot be saved: .* and fully_shard"):
        pool.run(sharded_programs.train_with_zero, workers=2, dir=str(tmp_path), name="zero", progress=False)


def test_a_reduction_that_gloo_lacks_is_refused_before_training(pool: st.Pool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"workers": 2, "dir": str(tmp_path), "progress": False}
    with pytest.raises(
        st.RunFailedError, match=r"PREMUL_SUM\), and Gloo .*: call model\.set_force_sum_reduction_for_com"
    ):
        pool.run(sharded_programs.train_with_a_divide_factor, {"sums": False}, name="refused", **options)
    result = pool.run(sharded_programs.train_with_a_divide_factor, {"sums": True}, name="summed", **options)
    assert result.metrics["loss"] > 0


def test_a_type_that_gloo_lacks_is_refused_before_training(pool: st.Pool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"workers": 2, "dir": str(tmp_path), "progress": False}
    for number, types in enumerate([("float8_e4m3fn", "float32"), ("bfloat16", "int16")]):
        with pytest.raises(st.RunFailedError, match=r"Policy, of torch\.(float8_e4m3fn|int16), which Gloo cannot send"):
            pool.run(
                sharded_programs.train_with_types,
                dict(zip(("sent", "reduced"), types, strict=True)),
                name=f"refused-{number}",
                **options,
            )
    fitting = {"sent": "float16", "reduced": "bfloat16"}
    assert pool.run(sharded_programs.train_with_types, fitting, name="sent", **options).status == "succeeded"


def _member(rank: int, size: int, folder: str, plan: str, written: int, losses: Any) -> None:
    """Train four steps and write a part of the state after them, or read the state; note the losses of the others."""
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous-{plan}-{size}-{written}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    model = sharded_programs.network(plan, seed=1 - written)
    optimizer = sharded_programs.optimizer_of(model)
    files = Path(folder, "state")
    if written:
        for step in range(4):
            sharded_programs.train_step(model, optimizer, step, plan)
        write_part(files, 4, rank, model, optimizer)
    else:
        assert training_state.restore(None, files, rank, size=size, parts=(model, optimizer)).step == 4
    losses.put([sharded_programs.train_step(model, optimizer, step, plan) for step in range(4, STEPS)])
    losses.close()
    losses.join_thread()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of Gloo may end after what they use


def trained(folder: Path, size: int, plan: str = "fsdp", *, written: bool = False) -> list[list[float]]:
    """The losses of each member, of `size` processes."""
    context = multiprocessing.get_context("spawn")
    losses = context.Queue()
    arguments = (size, str(folder), plan, int(written), losses)
    members = [context.Process(target=_member, args=(rank, *arguments)) for rank in range(size)]
    for process in members:
        process.start()
    curves = [losses.get(timeout=120) for _ in members]
    for process in members:
        process.join(60)
        assert process.exitcode == 0
    return curves


def test_fewer_members_continue_with_equal_losses(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    [expected, *_] = trained(tmp_path, 4, written=True)
    assert len(set(expected)) == len(expected)
    for size in (2, 3, 4):
        for curve in trained(tmp_path, size):
            assert curve == pytest.approx(expected, rel=0, abs=EQUAL), size
