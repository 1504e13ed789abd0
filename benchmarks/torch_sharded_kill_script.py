"""The script of `benchmarks.torch_sharded` that loses members: with `memory` it takes memory checkpoints too."""

import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sparktrain

LAYERS = 4
BATCH = 16
EVERY = 20
"""Steps between two checkpoints in the store."""
KILLED_AFTER = (22, 38)
"""Steps of a generation before one of its members is killed, at random: between two checkpoints."""


def main(saver: str, plan: str, width: int, kills: int, folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    names = ("replicas", "parts") if plan == "hybrid" else ("parts",)
    shape = (2, 2) if plan == "hybrid" else (4,)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width, bias=False), nn.Tanh())))
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    x = torch.randn(BATCH, width)
    ctx = sparktrain.context()
    restored = ctx.checkpoint.restore(model, optimizer)
    start = restored.step if restored else 0
    generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    draws = random.Random(generation)
    kill_at = start + draws.randint(*KILLED_AFTER)
    victim = draws.randrange(4)
    block = ctx.memory_checkpoints(model, optimizer, every="0.001s") if saver == "memory" else nullcontext()
    with block as memory:
        for step in range(start + 1, kill_at + EVERY):
            if generation < kills and step == kill_at and rank == victim:
                threading.Timer(draws.random() * 0.05, _end, (folder / f"kill-{generation}",)).start()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if memory is not None:
                memory.step(step)
            if rank == 0:
                with (folder / "steps.jsonl").open("a") as file:
                    print(json.dumps([time.time(), step, generation]), file=file, flush=True)
            if step % EVERY == 0:
                ctx.checkpoint.save(step, model, optimizer)
            if generation >= kills and step == start + EVERY:
                break
    dist.barrier()
    dist.destroy_process_group()


def _end(path: Path) -> None:
    path.write_text(repr(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), Path(sys.argv[5]))
