"""Runs scripts for torchrun in a gang: `python -m sparktrain.torch`. Reads checkpoints of torch."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, those of torchrun, and return its exit code. Blocks."""
    from sparktrain.torch.launcher import run  # members import this package too, and no command line

    return run(arguments)


def load_checkpoint(folder: str | PathLike[str], **parts: Any) -> None:
    """Give `parts` their states from a folder that `torch.distributed.checkpoint` has written, without pickle.

    `load_checkpoint(folder, model=model, optimizer=optimizer)` reads what torch's `save` got as `{"model": ...,
    "optimizer": ...}`, with states of `get_state_dict`, in its own format or in safetensors. Any number of members may
    read it: each calls this after `fully_shard` and the like, and gets its parts; there is no collective. Blocks on the
    local disk. Raises UserError for objects that do not fit, and CheckpointError for a folder without such files, and
    for classes in them that are not torch's own: these are not loaded.
    """
    from sparktrain.training.frameworks.torch.distributed_checkpoint import load

    load(Path(folder), parts)


def copy_checkpoint(directory: str, folder: str | PathLike[str], trial: int = 0) -> int:
    """Copy the newest checkpoint of a trial to the new local `folder`, verify each byte, and return its step.

    `directory` is that of a run, in any store. `load_checkpoint`, and torch's own `HuggingFaceStorageReader`, read
    the folder where members held parts of the model. Blocks on the store. Raises SpecError for a folder that exists
    and for another trial, RunDirectoryError, CheckpointError where there is none or it is corrupt, OSError when the
    store fails.
    """
    from sparktrain.torch.stored_checkpoint import copy_newest

    return copy_newest(directory, Path(folder), trial)
