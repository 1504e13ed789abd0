"""A loop of PyTorch. Its members kill themselves at chosen moments."""

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.kills import Kills

ROWS = 96
BATCH = 4
STEPS = 30
LATE_S = 0.5
"""When a report that is late arrives."""


def rows() -> TensorDataset:
    """The data of all members."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, 6, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin(), torch.arange(len(x)))


def train(folder: str, kills: list[Any], every: str, ctx: Any, late: bool = False) -> None:
    """Train with dropout, statistics, momentum and a schedule, over several epochs; note how this member has ended.

    With `late` the report that a process has joined the ring of others arrives late.
    """
    if late:
        _delay_reports(ctx._wire)
    notes = Path(folder)
    (notes / f"pid-{ctx.rank}-{os.getpid()}").touch()
    died = Kills(notes, ctx.rank, kills)
    plain = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
    model = ctx.distribute(plain)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.7)
    loader = ctx.shard(DataLoader(rows(), batch_size=BATCH, shuffle=True))
    restored = ctx.checkpoint.restore(model, optimizer, scheduler, loader)
    step = restored.step if restored else 0
    means = restored["means"] if restored else []
    calls: Counter[int] = Counter()
    seen = (notes / f"rows-{ctx.rank}-{os.getpid()}.jsonl").open("a")

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = nn.functional.mse_loss(model(x), y)
        calls[died.step] += 1
        died.at("within")
        died.at(f"call {calls[died.step]}")
        loss.backward()
        died.at("applying")
        died.at("lag")
        optimizer.step()
        return loss.detach()

    with ctx.memory_checkpoints(model, optimizer, scheduler, loader, every=every) as memory:
        while step < STEPS:
            for x, y, numbers in loader:
                step += 1
                died.step = step
                print(json.dumps([step, numbers.tolist()]), file=seen, flush=True)
                died.at("before")
                died.at("together")
                died.at("later")
                if died.at("spoil"):
                    plain[0].bias.data.add_(1e-6)
                memory.train(train_step, x, y)
                scheduler.step()
                died.at("after")
                memory.step(step, means=means)
                died.at("end")
                if step == STEPS:
                    break
            means.append(ctx.allreduce(float(step * ctx.rank)))
    arrays = {name: value.numpy() for name, value in plain.state_dict().items()}
    momenta = [state["momentum_buffer"].numpy() for state in optimizer.state.values()]
    np.savez(notes / f"member-{ctx.rank}.npz", *momenta, **arrays)
    facts = {"means": means, "rate": optimizer.param_groups[0]["lr"], "step": step}
    (notes / f"facts-{ctx.rank}.json").write_text(json.dumps(facts))


def _delay_reports(wire: Any) -> None:
    """Send each report that this process has joined a ring `LATE_S` later."""

    stand = wire.stand

    def stand_later(**changes: int) -> None:
        threading.Timer(LATE_S if "ring" in changes else 0.0, stand, kwargs=changes).start()

    wire.stand = stand_later
