"""Lightning trains on two processes, each with the whole model, or with --fsdp a part: a script with four places for
sparktrain, which do nothing where it runs alone.

python -m sparktrain.torch --nproc-per-node 2 examples/scripts/lightning_trainer.py --devices 2
sparktrain sweep examples/scripts/lightning_trainer.py --grid lr=0.1,0.01 --metric val_loss --mode min \
    --workers-per-trial 2 --backend torch --local --slots 2 -- --devices 2
"""

import argparse

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from sparktrain.torch.lightning import TrialCheckpoint, TrialLogger


class Regression(pl.LightningModule):
    def __init__(self, lr, fsdp):
        super().__init__()
        self.lr = lr
        self.fsdp = fsdp
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def configure_model(self):
        if self.fsdp:
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        loss = self._loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)

    def _loss(self, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(self.net(inputs), targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--fsdp", action="store_true")
    args = parser.parse_args()
    pl.seed_everything(0)
    x = torch.randn(2560, 16)
    data = TensorDataset(x, x[:, :8].sum(1, keepdim=True))
    checkpoint = TrialCheckpoint()
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy=ModelParallelStrategy(args.devices, tensor_parallel_size=1) if args.fsdp else "auto",
        devices=args.devices,
        max_epochs=args.epochs,
        log_every_n_steps=8,
        logger=TrialLogger(),
        callbacks=[checkpoint],
        enable_progress_bar=False,
    )
    train, valid = torch.utils.data.random_split(data, [2048, 512])
    loaders = DataLoader(train, batch_size=64, shuffle=True), DataLoader(valid, batch_size=128)
    trainer.fit(Regression(args.lr, args.fsdp), *loaders, ckpt_path=checkpoint.ckpt_path)


if __name__ == "__main__":
    main()
