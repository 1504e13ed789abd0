"""A loop of PyTorch that divides the rows of each step among the members that its ring has then."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.resizing import STEPS, ResizedMember, examples, is_whole_again, keep_weights, rows_of

MOST = 1000


def built() -> tuple[Any, Any]:
    """The model, with equal weights in each process, and what computes its loss."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), nn.functional.mse_loss


def train(folder: str, kills: list[list[int]], lags: list[int], step_s: float, ctx: Any) -> dict[str, float]:
    """Train, with the losses of `ResizedMember`.

    With `step_s`, the work of a step, the loop ends once the gang was smaller, and is whole again.
    """
    plain, loss_of = built()
    model = ctx.distribute(plain)
    optimizer = torch.optim.Adam(plain.parameters(), 0.01)
    x, y = map(torch.from_numpy, examples())
    restored = ctx.checkpoint.restore(model, optimizer)
    member = ResizedMember(Path(folder), ctx, kills, lags)

    def train_step() -> None:
        rows = member.rows()
        member.kill(0)
        optimizer.zero_grad()
        loss_of(model(x[rows]), y[rows]).backward()
        member.lag()
        optimizer.step()
        member.note()

    step = restored.step if restored else 0
    sizes: list[int] = restored["sizes"] if restored else []
    with ctx.memory_checkpoints(model, optimizer, every="0.2s", resizable=True) as memory:
        while step < (MOST if step_s else STEPS):
            step += 1
            member.train(memory, train_step, step, sizes)
            if step_s:
                time.sleep(step_s)
                if is_whole_again(sizes):
                    break
    keep_weights(Path(folder), str(ctx.rank), [value.numpy() for value in plain.state_dict().values()])
    return {"size": ctx.size, "steps": step}


def repeat(folder: str, steps: int) -> None:
    """Train in one process on the rows of each step; keep the weights."""
    model, loss_of = built()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, y = map(torch.from_numpy, examples())
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss_of(model(x[rows_of(step)]), y[rows_of(step)]).backward()
        optimizer.step()
    keep_weights(Path(folder), "alone", [value.numpy() for value in model.state_dict().values()])
