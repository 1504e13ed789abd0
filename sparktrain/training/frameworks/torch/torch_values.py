"""What collectives on users' values ask of PyTorch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from sparktrain.training.collectives.user_values import UserValues


class TorchValues(UserValues):
    """See base class."""

    def _flat(self, value: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        leaves: list[Any] = []
        _mapped(value, leaves.append)

        def packed(values: Sequence[Any]) -> Any:
            remaining = iter(values)
            return _mapped(value, lambda _: next(remaining))

        return leaves, packed

    def _tensor(self, value: Any) -> torch.Tensor:
        return value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(self._array(value).copy())

    def _kind(self, tensor: torch.Tensor) -> str:
        if tensor.is_floating_point() or tensor.is_complex():
            return "f"
        return "b" if tensor.dtype is torch.bool else "i"

    def _cast(self, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        return tensor.to(getattr(torch, dtype))

    def _as(self, original: Any, tensor: torch.Tensor) -> Any:
        return tensor.item() if isinstance(original, bool | int | float) else self._gathered(original, tensor)

    def _gathered(self, original: Any, tensor: torch.Tensor) -> Any:
        return tensor if isinstance(original, torch.Tensor) else tensor.numpy()


VALUES = TorchValues()


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with each leaf changed; the keys of dicts in one order on all members."""
    if isinstance(value, Mapping):
        changed = {key: _mapped(value[key], change) for key in sorted(value)}
        return {key: changed[key] for key in value}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change) for item in value)
    return change(value)
