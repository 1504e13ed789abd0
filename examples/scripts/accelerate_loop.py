"""A loop of accelerate: a script with five lines for sparktrain, which do nothing where it runs alone.

python -m sparktrain.torch --nproc-per-node 2 examples/scripts/accelerate_loop.py
sparktrain sweep examples/scripts/accelerate_loop.py --grid lr=0.1,0.01 --metric loss --mode min \
    --workers-per-trial 2 --backend torch --local --slots 2
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparktrain.torch.accelerate import TrialTracker
from sparktrain.torch.checkpoint_folder import restored_folder, save_folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    order = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=True, dataloader_config=order, log_with=TrialTracker())
    accelerator.init_trackers("regression")
    torch.manual_seed(0)
    x = torch.randn(2048, 16)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    loader = DataLoader(TensorDataset(x, x[:, :8].sum(1, keepdim=True)), batch_size=64, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    accelerator.register_for_checkpointing(progress := Progress())
    if (folder := restored_folder()) is not None:
        accelerator.load_state(folder)
    while progress.epoch < args.epochs:
        loader.set_epoch(progress.epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        schedule.step()
        progress.epoch += 1
        accelerator.log({"loss": accelerator.reduce(loss.detach(), "mean").item()}, step=progress.epoch)
        accelerator.save_state("state")
        save_folder(progress.epoch, "state")
    accelerator.end_training()


class Progress:
    """The number of finished epochs, in the checkpoints of accelerate."""

    def __init__(self):
        self.epoch = 0

    def state_dict(self):
        return {"epoch": self.epoch}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]


if __name__ == "__main__":
    main()
