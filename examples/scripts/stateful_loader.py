"""A script for torchrun with the stateful loader of torchdata, which continues in the middle of an epoch.

python -m sparktrain.torch --nproc-per-node 2 examples/scripts/stateful_loader.py
sparktrain sweep examples/scripts/stateful_loader.py --grid lr=0.1,0.01 --metric loss --mode min \
    --workers-per-trial 2 --backend torch --local --slots 2
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import sparktrain


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(2048, 16)
    dataset = TensorDataset(x, x.sum(dim=1, keepdim=True))
    model = DistributedDataParallel(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    sampler = StatefulDistributedSampler(dataset)
    loader = StatefulDataLoader(dataset, batch_size=64, sampler=sampler)
    ctx = sparktrain.context()
    restored = ctx.checkpoint.restore(model, optimizer, loader) if ctx else None
    step = restored.step if restored else 0
    for epoch in range(restored["at"] if restored else 0, args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                sparktrain.report(step, loss=loss.item())
                if ctx and ctx.rank == 0:
                    ctx.checkpoint.save(step, model, optimizer, loader, at=epoch)
    sparktrain.report(step + 1, loss=loss.item(), steps=step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
