"""Models of PyTorch that members hold in parts, and what they compute on any number of members."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from sparktrain.training.checkpoint import saver, tensor_files

ROWS = 24
PLANS = ("fsdp", "tensor", "hybrid", "both")


def network(plan: str = "fsdp", seed: int = 0) -> nn.Module:
    """A model that members hold in parts, by `plan`; every member has the same generator. The group is there."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 1))
    size = dist.get_world_size()
    parallel = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if plan == "tensor":
        return parallelize_module(model, init_device_mesh("cpu", (size,)), parallel)
    if plan == "fsdp":
        mesh = init_device_mesh("cpu", (size,))
    else:
        grid = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicas", "parts"))
        mesh = grid if plan == "hybrid" else grid["replicas"]
        if plan == "both":
            model = parallelize_module(model, grid["parts"], parallel)
    return split(model, mesh)


def split(model: nn.Module, mesh: Any = None) -> nn.Module:
    """`fully_shard` of the layers, and of the rest; over all members without a `mesh`."""
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """One with slots like the weights, and with numbers."""
    return torch.optim.AdamW(model.parameters(), 0.03)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, plan: str = "fsdp") -> float:
    """One step on rows that `step` alone decides, divided over the members that have copies; the loss of all rows."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS, 6, generator=generator)
    y = x.sum(1, keepdim=True).sin()
    shares, share = dist.get_world_size(), dist.get_rank()
    if plan == "tensor":
        shares, share = 1, 0
    elif plan == "both":
        shares, share = shares // 2, share // 2
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[share::shares]), y[share::shares])
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def die_while_saving(checkpoint: Any, moment: str) -> None:
    """Have this process end by a signal at a moment of its next save."""

    def die(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def after(call: Any) -> Any:
        return lambda *arguments, **options: die(call(*arguments, **options))

    if moment == "captured":
        checkpoint._stage = die
    elif moment == "half written":
        tensor_files.save_index = die
    elif moment == "written":
        saver.write_state = after(saver.write_state)
    elif moment == "handed over":
        checkpoint._answer = die
    elif moment == "answered":
        checkpoint._answer = after(checkpoint._answer)


def train(
    folder: str, steps: int, ctx: Any, plan: str = "fsdp", kill_at: int = 0, rank: int = 0, moment: str = "saved"
) -> dict[str, float]:
    """Train a model in parts, save after every second step, and end a member by a signal at one of them.

    `moment`: of its save.
    """
    dist.init_process_group("gloo")
    model = network(plan, seed=ctx.generation)
    optimizer = optimizer_of(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
    restored = ctx.checkpoint.restore(model, optimizer, scheduler)
    done = 0 if restored is None else restored.step
    loss = 0.0
    for step in range(done + 1, steps + 1):
        loss = train_step(model, optimizer, step, plan)
        scheduler.step()
        ctx.report(step, loss=loss, size=ctx.size)
        dies = step == kill_at and ctx.rank == rank and ctx.generation == 1
        if dies:
            die_while_saving(ctx.checkpoint, moment)
        if step % 2 == 0:
            ctx.checkpoint.save(step, model, optimizer, scheduler, note=f"step {step}")
            ctx.checkpoint.wait()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
    assert restored is None or restored["note"] == f"step {done}"
    whole = {name: weight.full_tensor() for name, weight in model.state_dict().items()}
    torch.save(whole, Path(folder, f"rank-{ctx.rank}.pt"))
    return {"loss": loss, "from": done, "size": ctx.size}


def evaluate_and_save(ctx: Any) -> None:
    """Save a model after its evaluation, alone and with its optimizer."""
    dist.init_process_group("gloo")
    model = fully_shard(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)))
    optimizer = optimizer_of(model)
    for step in (1, 2):
        train_step(model, optimizer, step)
        with torch.no_grad():
            model(torch.ones(1, 6))
        ctx.checkpoint.save(step, model, *[optimizer][: step - 1])
        ctx.checkpoint.wait()


def train_with_zero(ctx: Any) -> None:
    """Restore an optimizer that no member has whole, before a step."""
    dist.init_process_group("gloo")
    model = nn.Linear(2, 2)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)
    ctx.checkpoint.restore(model, optimizer)


def train_with_a_divide_factor(sums: bool, ctx: Any) -> dict[str, float]:
    """The loss of a second step, of gradients that are divided by another number than that of the members."""
    dist.init_process_group("gloo")
    model = network()
    model.set_gradient_divide_factor(3.0)
    model.set_force_sum_reduction_for_comms(sums)
    optimizer = optimizer_of(model)
    with ctx.memory_checkpoints(model, optimizer) as memory:
        for step in (1, 2):
            loss = train_step(model, optimizer, step)
            memory.step(step)
    return {"loss": loss}


def train_with_types(sent: str, reduced: str, ctx: Any) -> None:
    """Restore a model with weights and gradients that travel in other types than they have."""
    dist.init_process_group("gloo")
    policy = MixedPrecisionPolicy(param_dtype=getattr(torch, sent), reduce_dtype=getattr(torch, reduced))
    model = fully_shard(nn.Linear(4, 4), mp_policy=policy)
    ctx.checkpoint.restore(model, optimizer_of(model))


def train_with_a_guard(folder: str, steps: int, ctx: Any) -> None:
    """Save on rank 0 alone, as is right for a model that each member has whole."""
    dist.init_process_group("gloo")
    model = network()
    optimizer = optimizer_of(model)
    ctx.checkpoint._save_timeout_s = 3.0
    blocked_s = []
    for step in range(1, steps + 1):
        train_step(model, optimizer, step)
        if ctx.rank == 0:
            started_s = time.monotonic()
            ctx.checkpoint.save(step, model, optimizer)
            blocked_s.append(time.monotonic() - started_s)
            torch.save(model.state_dict(), Path(folder, f"{step}.pt"))
            torch.save({"step": step}, Path(folder, "step.pt"))
    dist.barrier()
    if ctx.rank == 0:
        Path(folder, "blocked.json").write_text(json.dumps(blocked_s))
        ctx.checkpoint.wait(100.0)
