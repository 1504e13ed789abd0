"""The loops of `tests.support.loops` and `tests.support.resizing` for PyTorch."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support import loops, resizing


class TorchLoop(loops.Loop):
    """A model with dropout, statistics and momentum. Each step is eager; with the way "tape" a worker loads data."""

    undone = 1

    def __init__(self, ctx: Any, way: str) -> None:
        super().__init__()
        layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3)]
        plain = self._plain = nn.Sequential(*layers)
        model = ctx.distribute(plain)
        assert dist.get_world_size() == ctx.size == int(os.environ["WORLD_SIZE"])
        optimizer = self._optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
        self._scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.7)
        data = TensorDataset(*map(torch.from_numpy, loops.rows()))
        loader = ctx.shard(DataLoader(data, batch_size=loops.BATCH, shuffle=True, num_workers=int(way == "tape")))
        self.parts = model, optimizer, self._scheduler, loader

        def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = nn.functional.cross_entropy(model(x), y)
            self.called()
            loss.backward()
            self.has_gradients()
            optimizer.step()
            return loss.detach()

        self.train_step = train_step

    def end_step(self) -> None:
        """See base class."""
        self._scheduler.step()

    def check_place(self, ctx: Any) -> None:
        """See base class."""
        assert dist.get_rank() == ctx.rank == int(os.environ["RANK"])

    def spoil(self) -> None:
        """See base class."""
        self._plain[0].bias.data.add_(1e-6)

    def variables(self) -> dict[str, Any]:
        """See base class."""
        momenta = {f"momentum {n}": each["momentum_buffer"] for n, each in enumerate(self._optimizer.state.values())}
        return {name: value.numpy() for name, value in (self._plain.state_dict() | momenta).items()}

    def facts(self) -> dict[str, Any]:
        """See base class."""
        return {"rate": self._optimizer.param_groups[0]["lr"]}


class TorchResizing(resizing.ResizedLoop):
    """See `tests.support.resizing.resize`."""

    def __init__(self, ctx: Any, lag: Any) -> None:
        torch.manual_seed(7)
        self._plain = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        model = self._plain if ctx is None else ctx.distribute(self._plain)
        optimizer = torch.optim.Adam(self._plain.parameters(), 0.01)
        self.parts = model, optimizer

        def train_step(x: Any, y: Any) -> None:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
            if lag:
                lag()
            optimizer.step()

        self.train_step = train_step

    def weights(self) -> list[Any]:
        """Those of the model."""
        return [value.numpy() for value in self._plain.state_dict().values()]


def train(way: str, ctx: Any, **options: Any) -> None:
    """See `loops.train`."""
    loops.train(lambda: TorchLoop(ctx, way), ctx, **options)


def resize(ctx: Any, **options: Any) -> dict[str, float]:
    """See `resizing.resize`."""
    return resizing.resize(TorchResizing, ctx, **options)


def repeat(**options: Any) -> None:
    """See `resizing.repeat`."""
    resizing.repeat(TorchResizing, **options)
