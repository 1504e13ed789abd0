"""The script of `benchmarks.torch_step`: it knows nothing of sparktrain."""

import json
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 1448
"""Four matrices of this width have 32 MiB."""
BATCH = 16
WARM_UP = 20


def main(steps: int, result: Path) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(BATCH, WIDTH)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        result.write_text(json.dumps(1000 * median(times[WARM_UP:])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
