"""Loops of PyTorch with memory checkpoints, that lose members, hang, shrink and grow."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sparktrain.base.clock import pause
from tests.support import drill
from tests.support.processes import wait_until
from tests.torch.ddp_programs import network, rows

STEP_S = 0.02
STEPS = 40
AFTER = 30
"""Steps that a gang trains on after it has grown."""


def learn(
    folder: str, ctx: Any, kill_at: int = 0, rank: int = 1, victim: str = "member", hang_at: int = 0
) -> dict[str, float]:
    """Train with momentum and a schedule, without a checkpoint in the store; lose `victim` of `rank` after a step.

    With `hang_at` member `rank` loops for ever after that step instead. Before a kill the driver has noted the copies
    after the step and the one before, in files `kept-N`.
    """
    plain = network()
    model = ctx.distribute(plain)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.7)
    restored = ctx.checkpoint.restore(model, optimizer, scheduler)
    start = 0 if restored is None else restored.step
    losses = [] if restored is None else restored["losses"]
    assert len(losses) == start
    with ctx.memory_checkpoints(model, optimizer, scheduler, every="0.01s") as memory:
        for step in range(start + 1, STEPS + 1):
            losses.append(float(_train_step(model, optimizer, step, ctx)))
            scheduler.step()
            memory.step(step, losses=losses)
            if ctx.generation == 1 and kill_at:
                ctx._gang.memory.settle()  # a copy that is not made yet postpones the next one
            if ctx.generation == 1 and ctx.rank == rank and step == kill_at:
                for kept in (step - 1, step):
                    wait_until(Path(folder, f"kept-{kept}").exists, 60, f"the copy after step {kept}")
                os.kill(drill.pid_of(victim), signal.SIGKILL)
            while ctx.generation == 1 and ctx.rank == rank and step == hang_at:
                pause(0.01)
    np.save(Path(folder, f"weights-{ctx.rank}.npy"), np.concatenate([w.detach().ravel() for w in plain.parameters()]))
    return {"start": start, "size": ctx.size, "loss": losses[-1]}


def grow(folder: str, ctx: Any, again: bool = False) -> dict[str, float]:
    """Train until the gang has been smaller, and then whole again; note each step as `tests.faults.growing.grow`."""
    model = ctx.distribute(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    restored = ctx.checkpoint.restore(model, optimizer)
    step = 0 if restored is None else restored.step
    with (
        Path(folder, f"{ctx.generation}-{ctx.rank}.jsonl").open("a") as file,
        ctx.memory_checkpoints(model, optimizer) as memory,
    ):
        for count in range(1, 2000):
            step += 1
            _train_step(model, optimizer, step, ctx)
            print(json.dumps([time.time(), step, ctx.size]), file=file, flush=True)
            if (ctx.generation, ctx.rank, count) == (1, 1, 20):
                os.kill(drill.pid_of("agent"), signal.SIGKILL)
            if ctx.generation > 2 and count >= AFTER:
                break
            memory.step(step)
    assert type(model).__name__ == ("DistributedDataParallel" if ctx.size > 1 else "Sequential")
    return {"size": ctx.size, "steps": step}


def _train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, ctx: Any) -> torch.Tensor:
    """A step on the rows that a step of the gang has, whichever members train on them."""
    x, y = rows().tensors
    pause(STEP_S)
    optimizer.zero_grad()
    share = slice(ctx.rank, None, ctx.size)
    loss: torch.Tensor = nn.functional.mse_loss(model(x[share]), y[share])
    loss.backward()
    optimizer.step()
    return loss.detach()
