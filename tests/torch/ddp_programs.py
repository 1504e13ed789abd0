"""Programs of PyTorch as users write them for torchrun, and what one process computes."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.support.eager_gangs import Arrays

ROWS = 48
BATCH = 12
EPOCHS = 3


def train(folder: str) -> dict[str, float]:
    """The script of a tutorial: it knows nothing of sparktrain, but for the result that it returns."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    size = dist.get_world_size()
    torch.manual_seed(rank)  # DistributedDataParallel sends the weights of rank 0
    model = DistributedDataParallel(network())
    sampler: Any = DistributedSampler(rows(), shuffle=False)
    weights, losses = fit(model, DataLoader(rows(), batch_size=BATCH // size, sampler=sampler), sampler)
    np.savez(Path(folder, f"rank-{rank}.npz"), weights=weights)
    dist.destroy_process_group()
    return {"loss": losses[-1], "size": size}


def train_alone() -> tuple[Any, list[float]]:
    """The weights, and the loss of each epoch, of one process on all rows."""
    torch.manual_seed(0)
    return fit(network(), DataLoader(rows(), batch_size=BATCH))


def rows() -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, 5, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))


def fit(model: nn.Module, loader: Any, sampler: Any = None) -> tuple[Any, list[float]]:
    """Train, and return the weights in one array, and the loss of each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for epoch in range(EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if dist.is_initialized():
            dist.all_reduce(total)
            total /= dist.get_world_size()
        losses.append(float(total) / len(loader))
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]).numpy(), losses


def with_environment() -> dict[str, float]:
    """The environment of torchrun, without a process group."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    return {name: float(os.environ[name]) for name in names} | {"group": float(dist.is_initialized())}


class GangArrays(Arrays):
    """Those of PyTorch."""

    array_type = torch.Tensor

    def made(self, values: list[Any], kind: str) -> Any:
        """See base class."""
        return torch.tensor(values).to(getattr(torch, kind))

    def own(self, values: list[float]) -> Any:
        """See base class."""
        return torch.tensor(values, dtype=torch.float32)

    def total(self, value: float) -> float:
        """See base class."""
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        summed = torch.tensor(value)
        dist.all_reduce(summed)
        return float(summed)


def call_keras(ctx: Any) -> None:
    """Ask for the callbacks of another framework."""
    ctx.keras_callbacks()


def reduce_alone(ctx: Any) -> dict[str, float]:
    """The collectives of a member without others, for a tensor and a number."""
    tensor = ctx.allreduce(torch.ones(3))
    assert isinstance(tensor, torch.Tensor)
    return {"tensor": float(ctx.allgather(tensor).sum()), "number": ctx.broadcast(2.5)}


def train_by_ctx(folder: str, compression: str, ctx: Any) -> dict[str, float]:
    """As `train`, with the calls of `ctx` alone."""
    torch.manual_seed(ctx.rank)
    model = ctx.distribute(network(), compression=compression)
    sampler: Any = DistributedSampler(rows(), ctx.size, ctx.rank, shuffle=False)
    weights, losses = fit(model, DataLoader(rows(), batch_size=BATCH // ctx.size, sampler=sampler), sampler)
    np.savez(Path(folder, f"rank-{ctx.rank}.npz"), weights=weights)
    return {"loss": losses[-1], "size": ctx.size, "wrapped": float(isinstance(model, DistributedDataParallel))}


def resume(folder: str, kill_at: int, ctx: Any) -> dict[str, float]:
    """Train with dropout, momentum and a schedule, save each step, and end rank 0 by a signal at one of them."""
    torch.manual_seed(5)
    plain = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    model = ctx.distribute(plain)
    optimizer = torch.optim.AdamW(plain.parameters(), 0.05)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 9], 0.5)
    restored = ctx.checkpoint.restore(model, optimizer, scheduler, alike=True)
    done = 0 if restored is None else restored.step
    x, y = rows().tensors
    for step in range(done + 1, 15):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        scheduler.step()
        ctx.report(step, lr=scheduler.get_last_lr()[0])
        if ctx.rank == 0:
            ctx.checkpoint.save(step, model, optimizer, scheduler, note=f"step {step}")
            ctx.checkpoint.wait()
        if step == kill_at and ctx.rank == 0 and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    assert restored is None or restored["note"] == f"step {done}"
    weights = torch.cat([weight.detach().reshape(-1) for weight in plain.parameters()]).numpy()
    np.save(Path(folder, f"{kill_at}-rank-{ctx.rank}.npy"), weights)
    return {"from": done, "lr": scheduler.get_last_lr()[0]}


def read_data(kind: str, kill_at: int, folder: str, ctx: Any) -> dict[str, float]:
    """Take the rows of two epochs by `to_torch` or by a loader, save each step, and end rank 1 by a signal at one."""
    if kind == "data":
        batches = ctx.dataset("train").to_torch(batch_size=4, feature_columns="id", shuffle=True)
    else:
        loader = DataLoader(TensorDataset(torch.arange(ROWS)), 4, shuffle=True, num_workers=kind == "workers")
        batches = ctx.shard(loader)
    model = nn.Linear(1, 1)
    restored = ctx.checkpoint.restore(model, batches)
    step = restored.step if restored is not None else 0
    seen = restored["seen"].tolist() if restored is not None else []
    for _ in range(batches.epoch, 2):
        for batch in batches:
            numbers = batch if kind == "data" else batch[0]
            seen += ctx.allgather(numbers).tolist()
            step += 1
            ctx.report(step, rows=len(seen))
            if ctx.rank == 0:
                ctx.checkpoint.save(step, model, batches, seen=np.array(seen))
                ctx.checkpoint.wait()
            ctx.allreduce(0.0)  # the save is acknowledged
            if step == kill_at and ctx.rank == 1 and ctx.generation == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    if ctx.rank == 0:
        np.save(Path(folder, f"{kind}-{kill_at}.npy"), np.array(seen))
    return {"steps": step, "rows": len(seen)}
