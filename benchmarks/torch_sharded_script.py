"""The script of `benchmarks.torch_sharded`: with `dcp` it knows nothing of sparktrain, with `ctx` it saves by it."""

import json
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

LAYERS = 4
BATCH = 16


def main(saver: str, width: int, steps: int, saves: int, folder: Path) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width, bias=False), nn.Tanh())))
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    x = torch.randn(BATCH, width)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    blocked = [_blocked_s(saver, step, model, optimizer, folder) for step in range(steps, steps + saves)]
    if dist.get_rank() == 0:
        measured = {"step_ms": 1000 * median(times[steps // 5 :]), "blocked_s": blocked[1:]}
        (folder / "measured.json").write_text(json.dumps(measured))
    dist.barrier()
    dist.destroy_process_group()


def _blocked_s(saver: str, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> float:
    """How long the call of a save lasts; the next one comes when it is complete."""
    dist.barrier()
    start = time.perf_counter()
    if saver == "ctx":
        import sparktrain

        ctx = sparktrain.context()
        ctx.checkpoint.save(step, model, optimizer)
        blocked = time.perf_counter() - start
        ctx.checkpoint.wait()
    else:
        weights, slots = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": slots}
        future = dcp.async_save(state, checkpoint_id=folder / f"saved-{step}")
        blocked = time.perf_counter() - start
        future.result()
    return blocked


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5]))
