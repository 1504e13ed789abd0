"""From SIGKILL of a member to the next optimizer step of its restarted gang of PyTorch: two members, small model.

    .venv-torch/bin/python -m benchmarks.torch_recovery [--kills 5]

As `benchmarks.recovery`, with `DistributedDataParallel` over Gloo. In each generation the second member kills itself
after a few steps; the gang resumes from the chief's checkpoint in the store, of each fifth step, or from the shared
memory of the other member.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.machine import show
from benchmarks.recovery import STEPS, recoveries, row
from benchmarks.session import MASTER, session
from tests.support.drill import pid_of

TARGET_S = 1.2


def from_store(folder: str, kills: int, victim: str, ctx):
    """With a checkpoint in the store of each fifth step."""
    model, optimizer = _objects(ctx)
    start = _start(ctx, model, optimizer)
    for step in range(start + 1, start + 10 * STEPS + 1):
        _train_step(model, optimizer, step)
        if step % 5 == 0 and ctx.rank == 0:
            ctx.checkpoint.save(step, model, optimizer)
        if _note(folder, kills, victim, ctx, step - start):
            return


def from_memory(folder: str, kills: int, victim: str, ctx):
    """With memory checkpoints alone."""
    model, optimizer = _objects(ctx)
    start = _start(ctx, model, optimizer)
    with ctx.memory_checkpoints(model, optimizer, every="0.01s") as memory:
        for step in range(start + 1, start + 10 * STEPS + 1):
            _train_step(model, optimizer, step)
            memory.step(step)
            if _note(folder, kills, victim, ctx, step - start):
                return


def _objects(ctx):
    model = ctx.distribute(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)))
    return model, torch.optim.Adam(model.parameters(), 1e-3)


def _start(ctx, model, optimizer) -> int:
    restored = ctx.checkpoint.restore(model, optimizer)
    return restored.step if restored else 0


def _train_step(model, optimizer, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 20, generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
    optimizer.step()


def _note(folder: str, kills: int, victim: str, ctx, count: int) -> bool:
    """Write the moment of the first step of a generation, and of a kill; whether the last generation may end."""
    if count == 1 and ctx.rank == 0:
        Path(folder, f"step-{ctx.generation}").write_text(repr(time.time()))
    if count == STEPS and ctx.rank == 1 and ctx.generation <= kills:
        Path(folder, f"kill-{ctx.generation}").write_text(repr(time.time()))
        os.kill(pid_of(victim), signal.SIGKILL)
    return count == STEPS and ctx.generation > kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    rows = []
    with session() as (spark, runs):
        for name, function in {"the store": from_store, "memory": from_memory}.items():
            rows.append(row(name, recoveries(spark, "torch", runs, given.kills, function=function), TARGET_S))
    title = f"SIGKILL of one of two members of PyTorch to the next step, {given.kills} kills each, {MASTER}"
    show(title, ("checkpoint in", "median", "all", "target"), rows)


if __name__ == "__main__":
    main()
