"""What a step of a model changes before its collective: kept so that the step can be repeated.

These are the statistics of layers, metrics, and seed generators. What each member has of its own among them also
travels with the gradients, so that the others can give it to the process that takes the place of a lost member.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.tensor_files import Array, TensorFiles
from sparktrain.training.collectives.passenger import Passenger
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras import model_state

MEMBERS = "sent/members"
"""The name, in the files with a state, of all members' own values."""
TRAVEL_BYTES = 2**18
"""The most bytes of all members' own values that travel with each step, or, if that is more, `TRAVEL_SHARE`."""
TRAVEL_SHARE = 0.02
"""Of the bytes of the gradients."""


class StepValues(Passenger):
    """The values of one member. It belongs to the thread that trains."""

    def __init__(self, model: Any, ring: Ring) -> None:
        """`model` is built, with its metrics."""
        self._ring = ring
        self._size = ring.size
        """Of the first ring: members have the same rows in a smaller one, and the rows of others are zeros there."""
        of_member = model_state.member_variables(model)
        seeds = {name: value for name, value in model_state.named(model).items() if name.startswith(model_state.SEEDS)}
        if (generator := model_state.global_generator()) is not None:
            seeds[model_state.GLOBAL_SEED] = generator.state
        self._changed = [*of_member.values(), *seeds.values()]
        """What a step changes before its collective."""
        rate = model.optimizer._learning_rate
        self._rate = rate if hasattr(rate, "assign") else None
        """The learning rate, where it is a variable."""
        self._travelling = {name: value for name, value in of_member.items() if value.dtype == "float32"}
        self._sizes = [int(np.prod(variable.shape)) for variable in self._travelling.values()]
        # As rows of one tensor of the gradients' type: a ring joins it to them, where another type costs an operation.
        nbytes = 4 * sum(self._sizes) * ring.size
        gradient_bytes = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
        self.travel = 0 < nbytes <= max(TRAVEL_BYTES, TRAVEL_SHARE * gradient_bytes)
        """Whether the own values of all members travel with the gradients."""

    @property
    @abstractmethod
    def members(self) -> Array:
        """The values of all members when they sent the gradients of the newest step, a row each."""

    @abstractmethod
    def assign_members(self, rows: Array) -> None:
        """Take `members` of another member."""

    @abstractmethod
    def keep_now(self) -> None:
        """Keep the values before a step that is not started."""

    @abstractmethod
    def put_back(self) -> None:
        """Undo what the newest step has changed before its collective."""

    @abstractmethod
    def has_same_rate(self) -> bool:
        """Whether the learning rate is that of the newest step."""

    def take_rank(self) -> None:
        """This process has its place, and with it the rank for its steps."""

    def drawn(self) -> dict[str, Array]:
        """The states of the framework's own generators, for the process that takes the place of a lost member."""
        return {}

    def assign_drawn(self, files: TensorFiles) -> None:
        """Take what `drawn` of another member has returned."""

    def of_member(self, rank: int) -> dict[str, Array]:
        """What member `rank` had of its own when it sent the gradients of the newest step; empty where none travels."""
        if not self.travel:
            return {}
        parts = np.split(self.members[rank], np.cumsum(self._sizes)[:-1])
        return {
            name: part.copy().reshape(tuple(variable.shape))
            for part, (name, variable) in zip(parts, self._travelling.items(), strict=True)
        }


def shared_variables(model: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that are equal on all members after each step: weights, and those of the optimizer."""
    return {
        name: variable
        for name, variable in model_state.named(model).items()
        if name not in own and not name.startswith((model_state.SEEDS, model_state.METRICS))
    }
