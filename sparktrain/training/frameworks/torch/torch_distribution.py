"""Has a model of PyTorch average its gradients over the members of a gang."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.errors import SpecError
from sparktrain.training.gang_join import JoinedGang
from sparktrain.training.learning_rates import check_steps, warmup_factor

_HOOKS: dict[str, Any] = {
    "none": None,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}
_CALL = "ctx.distribute()"
_DISTRIBUTED: "WeakKeyDictionary[DistributedDataParallel, _Connection]" = WeakKeyDictionary()
"""The models that `distribute` has returned."""


def distribute(model: Any, gang: JoinedGang, *, compression: str = "none") -> Any:
    """The `DistributedDataParallel` of `model` by the process group of the ring of `gang`, with the weights of rank 0.

    Without other members, or where these only mirror this one, it is `model` itself. Gradients travel in the type that
    `compression` names: "none" for their own, "fp16" or "bf16". Every member calls it with an equal model; it blocks
    until they do. Raises SpecError for an optimizer, and in a gang of another backend; RingError.
    """
    if compression not in _HOOKS:
        raise SpecError(
            f"{_CALL}: compression ({shown(compression)}) must be one of {', '.join(map(repr, _HOOKS))}"
            f"{did_you_mean(str(compression), _HOOKS)}"
        )
    if not isinstance(model, torch.nn.Module):
        raise SpecError(
            f"{_CALL} got an optimizer of PyTorch ({type(model).__name__}), which averages nothing: pass the model, "
            "and make the optimizer of the parameters of what it returns"
        )
    ring = gang.ring
    if ring.size == 1 or ring.mirrored:
        return model
    if ring.framework != "torch":
        raise SpecError(
            f"{_CALL} got a model of PyTorch ({type(model).__name__}), and this gang is connected by {ring.framework}: "
            "pass backend='torch' (--backend torch)"
        )
    ring.broadcast([], name="group")  # makes the process group where there is none
    devices = {parameter.device for parameter in model.parameters()}
    [device] = devices if len(devices) == 1 else [None]
    on_gpu = device is not None and device.type == "cuda"
    connection = _Connection([device] if on_gpu else None, _HOOKS[compression])
    options: Any = {"device_ids": connection.device_ids}
    torch_ring: Any = ring
    # A process that joins members that train has the weights of those later: they make no collective for it.
    if ring.joins_late or torch_ring.is_waiting:
        options["init_sync"] = False
    with torch_ring.knowing():
        distributed = DistributedDataParallel(model, **options)
    connection.hook_into(distributed)
    _DISTRIBUTED[distributed] = connection
    return distributed


@dataclass(frozen=True)
class _Connection:
    """How a `DistributedDataParallel` averages."""

    device_ids: Sequence[Any] | None
    hook: Any

    def hook_into(self, distributed: DistributedDataParallel) -> None:
        if self.hook is not None:
            distributed.register_comm_hook(None, self.hook)


def distributed_models(parts: Sequence[Any]) -> "Iterator[DistributedDataParallel]":
    """What `distribute` has returned for models among `parts`, or is among them."""
    ids = set(map(id, parts))
    for distributed in list(_DISTRIBUTED):
        if id(distributed) in ids or id(distributed.module) in ids:
            yield distributed


def connect_again(distributed: DistributedDataParallel) -> None:
    """Have a model of `distribute` average by the default process group that there is now. Makes no collective."""
    connection = _DISTRIBUTED[distributed]
    training = distributed.training
    # No other way to replace the group: what averages is made by the constructor, and keeps the group.
    distributed.__init__(distributed.module, device_ids=connection.device_ids, init_sync=False)
    distributed.training = training
    connection.hook_into(distributed)


def warmup_lr(optimizer: Any, steps: int, size: int) -> LambdaLR:
    """The schedule of `TrainContext.warmup_lr` in a gang of `size` members. Raises SpecError for less than one step."""
    check_steps(steps, "steps of ctx.warmup_lr()")
    return LambdaLR(optimizer, lambda step: warmup_factor(step, steps, size))
