"""The contract of a ring: collectives, which every member of a gang calls in the same order.

In come tensors of the thread that trains, and out come the sums, values or rows of all members, equal on each of
them. Every collective may be called eagerly and while a `tf.function` is traced; what it adds to a graph runs at each
call. What must hold: the members call the same collectives with tensors of equal dtypes and, except for `allgather`,
equal shapes. Otherwise the ring raises `sparktrain.errors.RingError`, at the latest after its timeout, and the
`CallWatch` of a member finds out from `calls` what each has called.

A ring that has failed once does not recover by itself: its gang ends, and another generation forms a new one. A ring
that `heals` can be left and joined again by the survivors (`sparktrain.training.collectives.ring_healing`).
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.training.frameworks.imported import imported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparktrain.training.collectives.eager_call_log import EagerCallLog
    from sparktrain.training.collectives.step_notes import StepNotes
    from sparktrain.training.frameworks.tensorflow.collectives.call_log import CallLog
    from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import PsModel


Tensor = Any
"""Of the ring's framework."""
TENSORFLOW = "tensorflow"
JAX_AVERAGING = "sparktrain.training.frameworks.jax.keras_steps"
"""See `Ring.keras_averaging`."""
_VALUES_OF_TENSORFLOW = "sparktrain.training.frameworks.tensorflow.optimizers.tensorflow_values"


class Ring(ABC):
    """One member's end of the ring. All methods belong to the thread that trains, and block until all members call."""

    rank: int
    size: int
    framework = TENSORFLOW
    """The package with its tensors."""
    keras_averaging = "sparktrain.training.frameworks.tensorflow.optimizers.optimizer"
    """The module with `average_by(ring, optimizer, compression)` for optimizers of Keras."""
    calls: "CallLog | EagerCallLog | None" = None
    """The collectives that this member has started; None where there is no other member to compare them with."""
    notes: "StepNotes | None" = None
    """When this member has ended its steps and has waited for the others; None for a member without others."""
    ps_model: "PsModel | None" = None
    """The parameter servers that apply this member's gradients; None where its own optimizer does."""
    local_steps: int | None = None
    """How many steps each member trains by itself before all average their weights; None: they average gradients."""
    source = 0
    """The rank that sends its values in `broadcast`: rank 0, but while another one helps a ring to heal."""
    heals = False
    """Whether the members can leave the ring after a loss, and join another one in the same process."""
    joins_late = False
    """Whether the other members trained before this process joined the ring: they have compared how they start."""
    has_stepped = False
    """Whether those had ended a step before this process took part at the end of another one."""
    mirrored = False
    """Whether the other members only mirror this one; then equal values of all members prove nothing."""

    def prepare_passing(self) -> bool:
        """Whether `pass_on` brings arrays from one member to another one, from now on.

        All members call it, in the thread that trains. Blocks until they do. Raises RingError.
        """
        return False

    @abstractmethod
    def allreduce(self, tensors: Sequence[Tensor], *, average: bool, name: str) -> list[Tensor]:
        """Elementwise sum, or mean, of each dense tensor over all members; of any float or integer dtype.

        `name` distinguishes collectives that may run at the same time; it is the same on all members.
        """

    @abstractmethod
    def broadcast(self, tensors: Sequence[Tensor], *, name: str) -> list[Tensor]:
        """The values of rank 0, on every member; of any dtype but strings."""

    @abstractmethod
    def allgather(self, tensor: Tensor, *, name: str) -> Tensor:
        """The members' tensors, by rank, one after the other along their first axis, which may differ in length."""

    @abstractmethod
    def close(self) -> None:
        """Leave the ring together with all other members. A second call does nothing."""

    def members(self) -> Any:
        """The size, to divide by. In a function that is traced it is a tensor where the size may change."""
        return self.size

    def note_batches(self, noting: bool) -> bool:
        """Have what is traced from now on note how long it waits for its batches, or not; whether the ring can."""
        return False

    @property
    def values(self) -> Any:
        """The `UserValues` of the framework: collectives for numbers, arrays and tensors of users.

        A member without others has the one of the framework that its function has imported.
        """
        modules = [framework.values for framework in imported() if framework.values]
        return values_in(modules[0] if modules else _VALUES_OF_TENSORFLOW)

    def values_of(self, value: Any) -> Any:
        """The `values` for `value`."""
        return self.values

    # ---- the same collectives for NumPy's arrays, for code that knows no framework

    # They are tensors on the way even for a few numbers: members match the calls of one transport by their order, and a
    # second transport beside it would break that.

    def tensor(self, array: "NDArray[Any]") -> Tensor:
        """A tensor of the ring's framework, on the host, with the values of `array`."""
        return array

    def broadcast_arrays(self, arrays: "Sequence[NDArray[Any]]", *, name: str) -> "list[NDArray[Any]]":
        """`broadcast` of arrays. Called eagerly alone."""
        import numpy as np

        return [np.asarray(value) for value in self.broadcast([self.tensor(array) for array in arrays], name=name)]

    def allgather_array(self, array: "NDArray[Any]", *, name: str) -> "NDArray[Any]":
        """`allgather` of an array. Called eagerly alone."""
        import numpy as np

        return np.asarray(self.allgather(self.tensor(array), name=name))


class LocalRing(Ring):
    """The ring of a member without others: every collective returns its argument."""

    rank = 0
    size = 1

    def values_of(self, value: Any) -> Any:
        """See base class. Of the framework with its tensors, also where the process has imported another one first."""
        owners = [framework for framework in imported() if framework.values and framework.has_tensors(value)]
        return values_in(owners[0].values) if owners else self.values

    def allreduce(self, tensors: Sequence[Tensor], *, average: bool, name: str) -> list[Tensor]:
        """See base class."""
        return list(tensors)

    def broadcast(self, tensors: Sequence[Tensor], *, name: str) -> list[Tensor]:
        """See base class."""
        return list(tensors)

    def allgather(self, tensor: Tensor, *, name: str) -> Tensor:
        """See base class."""
        return tensor

    def close(self) -> None:
        """See base class."""


def values_in(module: str | None) -> Any:
    """The `UserValues` of a framework, by its `Framework.values`."""
    return importlib.import_module(str(module)).VALUES
