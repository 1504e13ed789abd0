"""transformers trains a small language model, made from a configuration: a script with three lines for sparktrain.

python -m sparktrain.torch --nproc-per-node 2 examples/scripts/transformers_trainer.py
sparktrain sweep examples/scripts/transformers_trainer.py --grid lr=0.01,0.001 --metric eval_loss --mode min \
    --workers-per-trial 2 --backend torch --local --slots 2
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from sparktrain.torch.transformers import TrialCallback


class Counting(Dataset):
    """Sequences that count up from any number below 32."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        tokens = (torch.arange(16) + number) % 32
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=1, n_head=2))
    callback = TrialCallback()
    trainer = Trainer(
        model,
        TrainingArguments(
            "output",
            use_cpu=True,
            learning_rate=args.lr,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=16,
            logging_steps=4,
            eval_strategy="epoch",
            save_strategy="epoch",
            disable_tqdm=True,
            report_to="none",
        ),
        train_dataset=Counting(256),
        eval_dataset=Counting(64),
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=callback.checkpoint)


if __name__ == "__main__":
    main()
