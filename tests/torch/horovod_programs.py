"""Programs of horovod.torch as users write them for horovodrun."""

import os
import signal
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

from tests.torch.ddp_programs import BATCH, EPOCHS, ROWS, network, rows


def train(folder: str) -> dict[str, float]:
    """The script of Horovod's guide: it knows nothing of sparktrain, but for the result that it returns."""
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    x, y = rows().tensors
    for _ in range(EPOCHS):
        for start in range(0, ROWS, BATCH):
            share = slice(start + hvd.rank(), start + BATCH, hvd.size())
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[share]), y[share]).backward()
            optimizer.step()
    weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]).numpy()
    np.savez(Path(folder, f"rank-{hvd.rank()}.npz"), weights=weights)
    total = hvd.allreduce(torch.tensor(float(hvd.rank() + 1)), op=hvd.Sum)
    hvd.shutdown()
    return {"size": hvd.size(), "total": float(total)}


def lose_a_member(ctx: Any) -> dict[str, float]:
    """Rank 1 of the first generation ends by a signal, while rank 0 waits for it."""
    hvd.init()
    total = 0.0
    for step in range(1, 11):
        if step == 5 and hvd.rank() == 1 and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        total += float(hvd.allreduce(torch.ones(()), op=hvd.Sum))
    return {"total": total, "generation": ctx.generation}


def elastic(folder: str) -> dict[str, float]:
    """An elastic program of Horovod's guide; rank 1 ends by a signal between two commits, once."""
    from horovod.torch.elastic import TorchState, run

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    x, y = rows().tensors
    resets: list[int] = []

    @run
    def learn(state: Any) -> None:
        while state.epoch < EPOCHS:
            for start in range(0, ROWS, BATCH):
                share = slice(start + hvd.rank(), start + BATCH, hvd.size())
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x[share]), y[share]).backward()
                optimizer.step()
                marker = Path(folder, "killed")
                if hvd.rank() == 1 and state.epoch == 1 and start == BATCH and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            state.epoch += 1
            state.commit()

    state = TorchState(model=model, optimizer=optimizer, epoch=0, seen=[hvd.rank()])
    state.register_reset_callbacks([lambda: resets.append(state.epoch)])
    learn(state)
    weights = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()]).numpy()
    np.savez(Path(folder, f"rank-{hvd.rank()}.npz"), weights=weights)
    return {"reset at": resets[0], "epoch": state.epoch, "seen": state.seen[0]}


def use_the_sampler() -> None:
    """What elastic programs of Horovod's guide divide data by."""
    hvd.init()
    hvd.elastic.ElasticSampler(rows())


def call_init() -> None:
    """Only connect."""
    hvd.init()
