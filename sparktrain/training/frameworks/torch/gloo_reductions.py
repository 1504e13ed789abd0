"""Refuses, before the first step, what `fully_shard` would ask of Gloo in the first backward pass, and Gloo lacks."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from sparktrain.errors import UserError

_SCALED = (None, torch.float32, torch.bfloat16)
"""The types of gradients that `fully_shard` divides by the collective itself; None: that of the parameters."""


def check_reductions(parts: Sequence[object]) -> None:
    """Raise UserError for a model among `parts` with a divide factor of gradients by which Gloo cannot multiply."""
    modules = [
        (f"model.{name}" if name else "model", module)
        for part in parts
        if isinstance(part, torch.nn.Module)
        for name, module in part.named_modules()
        if isinstance(module, FSDPModule)
    ]
    for name, module in modules:
        # Torch has no public way to this. Where a version has it elsewhere, torch itself raises the error later.
        with suppress(AttributeError):
            for factor in _lacking(module._get_fsdp_state()):
                raise UserError(
                    f"{name}.set_gradient_divide_factor({factor:g}) multiplies gradients within a collective "
                    "(ReduceOp.PREMUL_SUM), and Gloo has no such operation: call "
                    f"{name}.set_force_sum_reduction_for_comms(True) too, or leave the factor out"
                )


def _lacking(state: Any) -> Iterator[float]:
    """The divide factors of a module's own parameters that Gloo would get."""
    for group in state._fsdp_param_groups:
        factor = group.gradient_divide_factor
        ring = getattr(group.mesh_info, "shard_process_group", None)
        is_plain = factor is None or ring is None or ring.size() in (1, factor) or group.force_sum_reduction_for_comms
        if not is_plain and state._mp_policy.reduce_dtype in _SCALED and _is_gloo(ring, group.device):
            yield factor


def _is_gloo(ring: dist.ProcessGroup, device: torch.device) -> bool:
    return str(ring._get_backend(device).name()) == "gloo"
