"""Has the sums of gradients in a ring of PyTorch pass through a function of a test."""

from collections.abc import Callable, Sequence
from typing import Any

from sparktrain.training.frameworks.torch.torch_ring import TorchRing


def pass_sums(end: Callable[[], None]) -> None:
    """Call `end` in each step once its sums are there."""
    allreduce = TorchRing._allreduce

    def late(ring: TorchRing, tensors: Sequence[Any], average: bool, name: str) -> list[Any]:
        totals = allreduce(ring, tensors, average, name)
        if name == "gradients":
            end()
        return totals

    TorchRing._allreduce = late  # type: ignore[method-assign]
