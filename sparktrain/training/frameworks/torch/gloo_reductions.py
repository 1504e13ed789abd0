"""Refuses, before the first step, what `fully_shard` would ask of Gloo in that step, and Gloo lacks."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from sparktrain.errors import UserError

_SCALED = (None, torch.float32, torch.bfloat16)
"""The types of gradients that `fully_shard` divides by the collective itself; None: that of the parameters."""
_SENT = {
    None, torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
}  # fmt: skip
"""The types of tensors that Gloo takes; None: those of the parameters."""


def check_reductions(parts: Sequence[object]) -> None:
    """Raise UserError for a model among `parts` of a type that Gloo does not take, or with a divide factor of gradients
    by which it cannot multiply."""
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
            state = module._get_fsdp_state()
            for group, size in _groups_on_gloo(state):
                _check_types(name, group, state._mp_policy)
                _check_factor(name, group, size, state._mp_policy)


def _groups_on_gloo(state: Any) -> Iterator[tuple[Any, int]]:
    """The groups of a module's own parameters that several members divide over Gloo, and how many these are."""
    for group in state._fsdp_param_groups:
        ring = getattr(group.mesh_info, "shard_process_group", None)
        if ring is not None and ring.size() > 1 and _is_gloo(ring, group.device):
            yield group, ring.size()


def _check_types(name: str, group: Any, policy: Any) -> None:
    held = [parameter.sharded_param.dtype for parameter in group.fsdp_params]
    sent = [policy.param_dtype or dtype if dtype.is_floating_point else dtype for dtype in held]
    for dtype in [*sent, policy.reduce_dtype]:
        if dtype not in _SENT:
            raise UserError(
                f"{name} has parameters, or a MixedPrecisionPolicy, of {dtype}, which Gloo cannot send: pass "
                "mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) to "
                "fully_shard, or convert the model"
            )


def _check_factor(name: str, group: Any, size: int, policy: Any) -> None:
    factor = group.gradient_divide_factor
    is_plain = factor is None or factor == size or group.force_sum_reduction_for_comms
    if not is_plain and policy.reduce_dtype in _SCALED:
        raise UserError(
            f"{name}.set_gradient_divide_factor({factor:g}) multiplies gradients within a collective "
            "(ReduceOp.PREMUL_SUM), and Gloo has no such operation: call "
            f"{name}.set_force_sum_reduction_for_comms(True) too, or leave the factor out"
        )


def _is_gloo(ring: dist.ProcessGroup, device: torch.device) -> bool:
    return str(ring._get_backend(device).name()) == "gloo"
