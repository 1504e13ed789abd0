"""A single member of a gang without the other members: what it knows of them, and what it cannot do."""

import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sparktrain.base.clock import Clock
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import Role
from sparktrain.errors import GangNeededError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training import gang_join
from sparktrain.training.collectives.ring import JAX_AVERAGING, TENSORFLOW, LocalRing, Ring
from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.tensorflow.strategies.strategy import Strategies

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

_STEP = "pass mirrored=True to local_context(), by which the others have the values of this member, pass size=1"
_REAL = "pass size=1, for no process can stand for the others in a strategy of TensorFlow"
_EAGER_AVERAGING = "sparktrain.training.frameworks.keras.eager_average"
_ADDRESS = "192.0.2"  # RFC 5737: addresses for documentation, which no host has


class AbsentRing(Ring):
    """The ring of a member without the others: each operation raises GangNeededError."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def allreduce(self, tensors: "Sequence[tf.Tensor]", *, average: bool, name: str) -> "list[tf.Tensor]":
        """See base class."""
        _refuse(f"an allreduce ({name})", self.size)

    def broadcast(self, tensors: "Sequence[tf.Tensor]", *, name: str) -> "list[tf.Tensor]":
        """See base class."""
        _refuse(f"a broadcast ({name})", self.size)

    def allgather(self, tensor: "tf.Tensor", *, name: str) -> "tf.Tensor":
        """See base class."""
        _refuse(f"an allgather ({name})", self.size)

    def close(self) -> None:
        """See base class."""


class MirrorRing(Ring):
    """The ring of a member that assumes its own values for the others in each operation."""

    rank = 0
    mirrored = True

    def __init__(self, size: int) -> None:
        self.size = size

    def allreduce(self, tensors: "Sequence[tf.Tensor]", *, average: bool, name: str) -> "list[tf.Tensor]":
        """See base class."""
        return [tensor if average else tensor * self.size for tensor in tensors]

    def broadcast(self, tensors: "Sequence[tf.Tensor]", *, name: str) -> "list[tf.Tensor]":
        """See base class."""
        return list(tensors)

    def allgather(self, tensor: "tf.Tensor", *, name: str) -> "tf.Tensor":
        """See base class."""
        copies = [tensor] * self.size
        if hasattr(tensor, "detach"):  # of PyTorch
            return sys.modules["torch"].cat(copies)
        if self.framework != TENSORFLOW:
            import numpy as np

            return np.concatenate([np.asarray(copy) for copy in copies])
        import tensorflow as tf

        return tf.concat(copies, axis=0)

    def tensor(self, array: "np.ndarray[Any, Any]") -> "tf.Tensor":
        """See base class. Members of other frameworks than TensorFlow mirror arrays."""
        if self.framework != TENSORFLOW:
            return array
        import tensorflow as tf

        return tf.constant(array)

    def close(self) -> None:
        """See base class."""


class LoneGang(gang_join.JoinedGang):
    """The gang of a member without the others, which are absent or mirror it."""

    def leave(self) -> None:
        """There is no other member to compare the last weights with."""


class LoneStrategies(Strategies):
    """Strategies that connect no gang: those that need one raise GangNeededError once the call is known to be right."""

    def _connect(self, kind: str, options: dict[str, Any]) -> Any:
        _refuse(f"ctx.strategy({kind!r})", self._formation.size, _REAL)


def lone_gang(size: int, backend: Backend, mirrored: bool) -> gang_join.JoinedGang:
    """The gang of rank 0 of `size` members; those of backend "none" never talk to each other."""
    places = tuple(_place(rank) for rank in range(size))

    def join() -> Ring:
        ring = MirrorRing(size) if mirrored else AbsentRing(size)
        if not backend.uses_tensorflow:
            ring.framework = backend.value
            ring.keras_averaging = JAX_AVERAGING if backend is Backend.JAX else _EAGER_AVERAGING
        return ring

    return LoneGang(Formation(0, places), LocalRing if backend is Backend.NONE else join, lambda: None)


def lone_strategies(gang: gang_join.JoinedGang, backend: Backend, clock: Clock) -> LoneStrategies:
    """The strategies of a member of `gang`."""
    return LoneStrategies(gang.formation, backend, gang.release_port, timeout_s=gang_join.RING_TIMEOUT_S, clock=clock)


def refuse_cluster(size: int) -> None:
    """Have the strategies that TensorFlow makes of TF_CONFIG raise GangNeededError: they would wait for an hour."""
    import tensorflow as tf

    def absent(kind: str, _: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            _refuse(f"tf.distribute.{kind}", size, _REAL)

        return init

    for kind in ("MultiWorkerMirroredStrategy", "ParameterServerStrategy"):
        replace(getattr(tf.distribute, kind), "__init__", partial(absent, kind))


def _place(rank: int) -> MemberAddress:
    role = Role.WORKER if rank else Role.CHIEF
    host = f"absent-{rank}" if rank else socket.gethostname()
    return MemberAddress(host, f"{_ADDRESS}.{rank % 254 + 1}", 1 + rank, role)


def _refuse(operation: str, size: int, step: str = _STEP) -> NoReturn:
    error = GangNeededError(
        f"{operation} needs all {size} members of the gang, and this process is rank 0 without the others: {step}, "
        f"or train in a gang, with sparktrain.run(train, params, workers={size})"
    )
    error.ag_pass_through = True  # type: ignore[attr-defined] # or AutoGraph raises an error of its own
    raise error
