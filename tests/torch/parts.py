"""Members of a gang of PyTorch in one process, one after the other: each with its part of a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from sparktrain.training.checkpoint import training_state


@contextmanager
def member(rank: int, size: int) -> Iterator[None]:
    """This process is a member; its collectives do nothing."""
    _clear_sharding_prop_cache()  # with the places of the member before
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def write_part(folder: Path, step: int, rank: int, *parts: Any) -> int:
    """Put the files of one member into `folder`, as the store has those of all members; the bytes of its tensors."""
    state = training_state.capture(None, step, parts=parts, rank=rank)
    own = folder / f"of-{rank}"
    training_state.write_state(own, state)
    for path in own.iterdir():
        path.rename(folder / path.name)
    own.rmdir()
    return sum(tensor.nbytes for tensor in state.tensors.values())
