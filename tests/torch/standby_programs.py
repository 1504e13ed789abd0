"""A loop of PyTorch in which all members wait twice, until the test has killed one of them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from tests.support.standby_kills import HELD_S
from tests.torch.healing_loops import BATCH, STEPS, rows

HOLDS = (5, 15)
"""Steps after which all members wait: in the first epoch, and in the second one."""


def train(folder: str, holds: int, reads: str, ctx: Any) -> None:
    """Train with dropout, statistics, momentum and a loader with a worker; note processes, rows and the end.

    `reads`: how the function asks for its rank before it restores; empty where it does not.
    """
    notes = Path(folder)
    (notes / f"pid-{os.getpid()}").touch()
    plain = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
    model = ctx.distribute(plain)
    assert dist.get_world_size() == ctx.size == int(os.environ["WORLD_SIZE"])
    if reads:
        rank = dist.get_rank() if reads == "group" else int(os.environ["RANK"])
        (notes / f"rank-{rank}-{os.getpid()}").touch()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    loader = ctx.shard(DataLoader(rows(), batch_size=BATCH, shuffle=True, num_workers=1))
    restored = ctx.checkpoint.restore(model, optimizer, loader)
    assert dist.get_rank() == ctx.rank == int(os.environ["RANK"])
    step = restored.step if restored else 0
    means = restored["means"] if restored else []
    seen = (notes / f"rows-{ctx.rank}-{os.getpid()}.jsonl").open("a")

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with ctx.memory_checkpoints(model, optimizer, loader) as memory:
        while step < STEPS:
            for x, y, numbers in loader:
                step += 1
                print(json.dumps([step, numbers.tolist()]), file=seen, flush=True)
                memory.train(train_step, x, y)
                memory.step(step, means=means)
                _hold(notes, ctx.rank, step, holds)
                if step == STEPS:
                    break
            means.append(ctx.allreduce(float(step * (ctx.rank + 1))))
    arrays = {name: value.numpy() for name, value in plain.state_dict().items()}
    momenta = [state["momentum_buffer"].numpy() for state in optimizer.state.values()]
    np.savez(notes / f"member-{ctx.rank}.npz", *momenta, **arrays)
    (notes / f"facts-{ctx.rank}.json").write_text(json.dumps({"means": means, "step": step, "pid": os.getpid()}))


def _hold(notes: Path, rank: int, step: int, holds: int) -> None:
    """Wait for a file of the test, after the first `holds` of the steps where the members wait."""
    if step not in HOLDS[:holds]:
        return
    number = HOLDS.index(step)
    (notes / f"held-{number}-{rank}").write_text(str(os.getpid()))
    deadline = time.monotonic() + HELD_S
    while not (notes / f"go-{number}").exists():
        assert time.monotonic() < deadline, f"no member was killed after step {step}"
        time.sleep(0.002)
