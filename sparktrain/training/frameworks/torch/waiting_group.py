"""The process group of a process that waits for a place in the ring of others: it connects nothing.

The training function makes its models of `DistributedDataParallel` by it, and learns the size of the gang from it, as
in a member. The group of the ring replaces it once the process has its place.
"""

from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from sparktrain.state.topology import Formation

_BACKEND = "sparktrain_waiting"


class WaitingGroup(dist.ProcessGroup):  # type: ignore[misc] # torch is not installed where types are checked
    """A group with a rank, a size, and no operations: torch raises RuntimeError for each of them."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.on_rank_read: Callable[[], object] = lambda: None

    def rank(self) -> int:
        """See base class. `torch.distributed.get_rank` comes here."""
        self.on_rank_read()
        return int(super().rank())


def start(formation: Formation, on_rank_read: Callable[[], object]) -> None:
    """Make the default group of a process that is prepared for its place in `formation`.

    `on_rank_read` is called each time that the function asks for its rank. Once for a process. Does not block.
    """

    def make(store: dist.Store, rank: int, size: int, timeout: timedelta) -> WaitingGroup:
        return WaitingGroup(rank, size)

    dist.Backend.register_backend(_BACKEND, make, devices=["cpu"])
    dist.init_process_group(_BACKEND, store=dist.HashStore(), rank=formation.rank, world_size=formation.size)
    group = dist.group.WORLD
    assert isinstance(group, WaitingGroup)
    group.on_rank_read = on_rank_read
