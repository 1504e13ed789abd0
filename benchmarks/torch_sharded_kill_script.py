"""The script of `benchmarks.torch_sharded` that loses members. With `memory` it takes memory checkpoints too, and with
`dcp` it knows nothing of sparktrain."""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LAYERS = 4
BATCH = 16
EVERY = 20
"""Steps between two checkpoints in the store."""
KILLED_AFTER = (22, 38)
"""Steps of a generation before one of its members is killed, at random: between two checkpoints."""


class TorchCheckpoints:
    """Asynchronous checkpoints of torch in a local folder, with the interface of `ctx.checkpoint`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Collectives of its thread: in the group of the steps these would take each other's messages.
        self._group = dist.new_group(backend="gloo")
        self._save = None

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """The step of the newest one that is whole, or 0."""
        whole = [int(path.parent.name) for path in self._folder.glob("*/.metadata")]
        if not whole:
            return 0
        weights, slots = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": slots}, checkpoint_id=self._folder / str(max(whole)))
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=slots)
        return max(whole)

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Start a save once the one before is complete."""
        if self._save is not None:
            self._save.result()
        weights, slots = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": slots}
        self._save = dcp.async_save(state, checkpoint_id=self._folder / str(step), process_group=self._group)


def network(plan: str, width: int) -> nn.Module:
    """A model over four members: two pairs with equal parts, or all with parts of their own."""
    names = ("replicas", "parts") if plan == "hybrid" else ("parts",)
    mesh = init_device_mesh("cpu", (2, 2) if plan == "hybrid" else (4,), mesh_dim_names=names)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width, bias=False), nn.Tanh())))
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main(saver: str, plan: str, width: int, kills: int, folder: Path) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network(plan, width)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    block: Any = nullcontext()
    checkpoint: Any
    if saver == "dcp":
        checkpoint = TorchCheckpoints(folder / "saved")
        start = checkpoint.restore(model, optimizer)
    else:
        import sparktrain

        ctx = sparktrain.context()
        checkpoint = ctx.checkpoint
        restored = checkpoint.restore(model, optimizer)
        start = restored.step if restored else 0
        block = ctx.memory_checkpoints(model, optimizer, every="0.001s") if saver == "memory" else block
    with block as memory:
        train(start, kills, folder, model, optimizer, lambda step: memory and memory.step(step), checkpoint)
    dist.barrier()
    dist.destroy_process_group()


def train(
    start: int,
    kills: int,
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    end_step: Callable[[int], object],
    checkpoint: Any,
) -> None:
    """Train until a member of this generation kills itself, or, after all kills, until the next checkpoint."""
    generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    draws = random.Random(generation)
    kill_at = start + draws.randint(*KILLED_AFTER)
    victim = draws.randrange(4)
    x = torch.randn(BATCH, model[0].in_features)
    last = kill_at + EVERY if generation < kills else start + EVERY
    for step in range(start + 1, last + 1):
        if generation < kills and step == kill_at and dist.get_rank() == victim:
            threading.Timer(draws.random() * 0.05, _end, (folder / f"kill-{generation}",)).start()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        end_step(step)
        if dist.get_rank() == 0:
            with (folder / "steps.jsonl").open("a") as file:
                print(json.dumps([time.time(), step, generation]), file=file, flush=True)
        if step % EVERY == 0:
            checkpoint.save(step, model, optimizer)


def _end(path: Path) -> None:
    path.write_text(repr(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), Path(sys.argv[5]))
