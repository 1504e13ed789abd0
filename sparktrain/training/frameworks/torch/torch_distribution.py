"""Has a model of PyTorch average its gradients over the members of a gang."""

from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring

_HOOKS: dict[str, Any] = {
    "none": None,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}
_CALL = "ctx.distribute()"


def distribute(model: Any, ring: Ring, *, compression: str = "none") -> Any:
    """The `DistributedDataParallel` of `model` by the process group of `ring`, with the weights of rank 0.

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
    distributed = DistributedDataParallel(model, device_ids=[device] if on_gpu else None)
    if (hook := _HOOKS[compression]) is not None:
        distributed.register_comm_hook(None, hook)
    return distributed
