"""The script of `benchmarks.torch_step`: it knows nothing of sparktrain."""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

WIDTH = 1448
"""Four matrices of this width have 32 MiB."""
BATCH = 16
WARM_UP = 20


def main(steps: int, result: Path, operations: Path | None) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(BATCH, WIDTH)
    times = []
    with profile(activities=[ProfilerActivity.CPU]) if operations else nullcontext() as profiler:
        for _ in range(steps):
            start = time.perf_counter()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        result.write_text(json.dumps(1000 * median(times[WARM_UP:])))
    if operations and dist.get_rank() == 0:
        own_ms = {event.key: event.self_cpu_time_total / 1000 / steps for event in profiler.key_averages()}
        operations.write_text(json.dumps(own_ms))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
