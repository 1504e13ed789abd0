"""`horovod.torch.elastic` over checkpoints of the gang: a restarted gang resumes at the last commit.

Horovod continues in the processes that are left; a gang restarts, so that its processes know each other again.
"""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import horovod.torch as hvd
import numpy as np
import torch

from sparktrain.config.param_values import described
from sparktrain.errors import SpecError
from sparktrain.training.checkpoint.extras import decoded, encoded
from sparktrain.training.elastic_state import ElasticState, resuming

if TYPE_CHECKING:
    from sparktrain.training.context import TrainContext

_ELSEWHERE = {
    "ElasticSampler": "pass each member its share by ctx.shard(loader), and give the state that loader, "
    "TorchState(loader=loader), which commits its position",
    "ObjectState": "use hvd.elastic.TorchState(**values), which needs no model",
}
_STATE = ("state_dict", "load_state_dict")


class _Current:
    """The trial of this process."""

    trial: "TrainContext | None" = None


def provide(trial: "TrainContext") -> None:
    """Have the states save and resume by `trial`. Call it before the training function."""
    _Current.trial = trial


def _trial(name: str) -> "TrainContext":
    if _Current.trial is None:
        raise SpecError(f"{name} was called outside of a training function, which alone can save and resume")
    return _Current.trial


class TorchState(ElasticState):
    """A model, an optimizer, and other objects with `state_dict`, and values, as attributes.

    A value is a number, a string, an array, or lists and dicts of them. Blocks nowhere but in `sync` and `commit`.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **values: Any) -> None:
        """Raises SpecError for a tensor among the values."""
        given = {"model": model, "optimizer": optimizer, **values}
        self._parts = {name: value for name, value in given.items() if _has_state(value)}
        self._names = tuple(name for name in values if name not in self._parts)
        for name in self._names:
            if isinstance(values[name], torch.Tensor):
                raise SpecError(
                    f"hvd.elastic.TorchState: {name} is {described(values[name])}, and a value is a number, a string, "
                    "an array, or lists and dicts of them: pass it as an array, by .numpy()"
                )
        vars(self).update(given)
        super().__init__()
        self.save()

    def save(self) -> None:
        """Copy states and values in memory, for `restore`."""
        states = {name: part.state_dict() for name, part in self._parts.items()}
        self._saved = copy.deepcopy((states, self._values()))

    def restore(self) -> None:
        """Go back to those of the last `save`, `sync` or `commit`."""
        states, values = copy.deepcopy(self._saved)
        for name, part in self._parts.items():
            part.load_state_dict(states[name])
        vars(self).update(values)

    def commit(self) -> None:
        """Save, also as a checkpoint of the gang. Every member calls it, after the same steps.

        The chief blocks while it copies the states, and while a commit before is not stored yet, at most 20 s. Raises
        TypeError and UserError for what a checkpoint cannot have.
        """
        self.save()
        self._commits += 1
        trial = _trial("hvd.elastic.TorchState.commit()")
        if trial.rank == 0:
            trial.checkpoint.save(self._commits, None, *self._parts.values(), values=self._values())

    def sync(self) -> None:
        """Give all members the chief's states and values. Every member calls it; it blocks until all do."""
        trial = _trial("hvd.elastic.TorchState.sync()")
        for part in self._parts.values():
            if isinstance(part, torch.nn.Module):
                hvd.broadcast_parameters(part.state_dict(), root_rank=0)
            elif isinstance(part, torch.optim.Optimizer):
                hvd.broadcast_optimizer_state(part, root_rank=0)
        # As JSON and arrays: a member unpickles nothing that another one sends.
        data = np.frombuffer(encoded(self._values()), np.uint8)
        # A broadcast needs arrays of one shape, and the chief's values may be of another length.
        length = int(trial.broadcast(data.size))
        sent = bytes(np.asarray(trial.broadcast(np.resize(data, length)), np.uint8))
        vars(self).update(decoded(sent))
        self.save()

    def resume(self) -> bool:
        """Take states and values of the newest checkpoint; False where there is none. Blocks on the local disk.

        Raises UserError where the state has other objects than the one that was committed.
        """
        restored = _trial("hvd.elastic.run()").checkpoint.restore(None, *self._parts.values())
        if restored is None:
            return False
        self._commits = restored.step
        vars(self).update(restored["values"])
        self.save()
        return True

    def _values(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self._names}


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function `function(state, ...)`, to resume at the last commit: see `resuming`."""
    return resuming(function, _trial)


def _has_state(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in _STATE)


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise SpecError(f"hvd.elastic.{name} is not there: {_ELSEWHERE[name]}")
    raise AttributeError(f"module 'horovod.torch.elastic' has no attribute {name!r}")


__all__ = ["TorchState", "run"]
