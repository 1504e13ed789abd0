"""A ring of Horovod, over Gloo, or NCCL for sums of floating-point numbers.

It uses only the operations of `horovod.tensorflow`: Horovod's optimizer and callbacks for Keras do not know Keras 3,
and its optimizer then reduces nothing, without an error. The members meet before `init`, which aborts a process that
waits too long, and find each other by a rendezvous of our own. Horovod matches operations by their names, which are
equal on all members. An operation that some member does not call ends after `operation_s`, the time of Horovod's
stall check.

Operations run on the CPU, and tensors of a GPU travel through host memory, unless Horovod is built with NCCL
(`scripts/build_horovod.sh --nccl`), and each member has a GPU of its own: then gradients stay on GPUs.
"""

import atexit
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from sparktrain.base.clock import SystemClock
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier, gpu_identity
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.gloo_rendezvous import Rendezvous
from sparktrain.training.collectives.horovod_environment import horovod_environment
from sparktrain.training.collectives.opened_sockets import PeerConnections, open_sockets
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.collectives.ring_exchange import RingExchange
from sparktrain.training.frameworks.tensorflow.collectives.bucketing import averaged, carry, of_equals
from sparktrain.training.frameworks.tensorflow.collectives.named_ring import HOST, NamedRing
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written

try:
    import horovod.tensorflow as hvd
    from horovod.tensorflow import mpi_ops  # its init and shutdown: those of `hvd` are replaced for users
except (ImportError, tf.errors.NotFoundError) as error:
    raise ImportError(
        f"backend 'horovod' needs a Horovod that is built for TensorFlow {tf.__version__}: run `make horovod` or "
        f"`scripts/build_horovod.sh`, and install its wheel on all executors; or take backend 'tensorflow' ({error})"
    ) from error

WITHOUT_NCCL = (
    "gradients travel through host memory, for NCCL needs a GPU of its own for each member, and Horovod with it"
)
# Horovod has no sums of bfloat16: `carry` has such numbers travel as float32.
_REDUCED = (tf.float32, tf.float64, tf.half, tf.int32, tf.int64)
_MOVED = (*_REDUCED, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.bool)


def join(joining: Joining) -> Ring:
    """See `sparktrain.training.collectives.backend.JoinRing`."""
    if joining.formation.size == 1:
        return LocalRing()
    connection = _Connection(False, PeerConnections()) if joining.changes.prepared else _connect(joining)
    return HorovodRing(joining, connection)


@dataclass(frozen=True)
class _Connection:
    """What connects a member to the others."""

    by_nccl: bool
    peers: PeerConnections
    """Of Gloo."""


def _connect(joining: Joining) -> _Connection:
    """Meet the other members, and have Horovod connect them. Raises FormError."""
    formation = joining.formation
    joining.release_port()  # Gloo takes ports of its own
    offers = gpu_identity.offered(joining, gpu_identity.gpu_uuid()) if mpi_ops.nccl_built() else {}
    # Gloo's timeout also bounds how far apart members may call init, and one that is missing aborts the others by
    # SIGABRT: meet first.
    shared = barrier.wait_for_all(joining, SystemClock(), offers)
    # NCCL refuses two members on one GPU, and only when it connects: the members compare UUIDs before.
    by_nccl = gpu_identity.each_has_its_own(gpu_identity.pop_uuids(shared, offers), formation.size)
    if offers and not by_nccl:
        print(f"[sparktrain] {WITHOUT_NCCL}", file=sys.stderr)
    exchange = joining.exchange

    def is_over() -> bool:
        return isinstance(exchange, RingExchange) and exchange.is_left

    with Rendezvous(formation.rank, exchange, shared, is_over) as rendezvous:
        # With this variable Horovod expects the driver of its own elastic runs.
        os.environ.pop("HOROVOD_ELASTIC", None)
        os.environ.update(
            horovod_environment(
                formation, rendezvous.address, timeout_s=joining.timeout_s, operation_s=joining.operation_s
            )
        )
        # Horovod has no way to end a collective that waits for a member that is gone, but its connections have.
        sockets_before = open_sockets()
        try:
            mpi_ops.init()
        except Exception as error:
            raise FormError(_not_formed(formation, rendezvous.heard, error)) from error
        gloo_sockets = open_sockets() - sockets_before
    # At exit it would wait for dead members; `close` leaves the living ones.
    atexit.unregister(mpi_ops.shutdown)
    return _Connection(by_nccl, PeerConnections(gloo_sockets))


def _not_formed(formation: Formation, heard: set[int], error: Exception) -> str:
    silent = sorted(set(range(formation.size)) - heard)
    hosts = ", ".join(f"{rank} on {formation.places[rank].host}" for rank in silent)
    detail = f"nothing came from rank {hosts}: see its log" if silent else "all members had started to connect"
    return f"{barrier.this_member(formation)}: Horovod's ring could not be formed; {detail} ({error})"


class HorovodRing(NamedRing):
    """See base class. Made by `join`.

    The object outlives its connection: traced functions and callbacks that have it use the ring that was joined last.
    """

    def __init__(self, joining: Joining, connection: _Connection) -> None:
        super().__init__(joining.formation, joining.operation_s, _MOVED, resizes=joining.changes.resizes)
        self._joining = joining
        self._connection = connection
        self._sums_on = "/GPU:0" if connection.by_nccl else HOST
        """Where sums of floating-point numbers are computed."""
        # Traced functions name the device of their sums, and NCCL's connections are none of the sockets of Gloo.
        self.heals = not connection.by_nccl

    def start_waiting(self, on_rank_read: Callable[[], object]) -> None:
        """This process waits for a place in the ring. Names of Horovod note by themselves who reads a rank."""

    def break_off(self) -> None:
        """End all connections to the other members: collectives, also one that is blocked, fail within 0.2 s.

        Any thread may call it. It does not block.
        """
        # Gloo forgets to fail an operation with a write that fails, and waits for its timeout, while others wait for
        # this member: it learns of the end by a read.
        self.peers.shut_down(socket.SHUT_RD)

    @property
    def peers(self) -> PeerConnections:
        """The connections to the other members."""
        return self._connection.peers

    def leave(self) -> None:
        """Leave the ring together with all other members, while no member is in a collective, or after `break_off`."""
        if mpi_ops.is_initialized():
            mpi_ops.shutdown()

    def rejoin(self, formation: Formation, number: int) -> None:
        """Leave the ring, and join that of `formation`. After a loss call `break_off` first.

        A ring of another size is only for a gang that may shrink: traced functions of others have the size for good.

        The rank is another one for a process that waited for any place. Blocks until all members have joined. Raises
        FormError.
        """
        self.leave()
        self._joining = replace(self._joining, formation=formation)
        self._connection = _connect(self._joining)
        self.take_place(formation)

    @as_written
    def allreduce(self, tensors: Sequence[tf.Tensor], *, average: bool, name: str) -> list[tf.Tensor]:
        """See base class."""
        return self._lasting(
            lambda: self._reduced(tensors, average, name), lambda: of_equals(tensors, self.size, average), name
        )

    def _reduced(self, tensors: Sequence[tf.Tensor], average: bool, name: str) -> list[tf.Tensor]:
        if self._connection.by_nccl:  # to note when a sum starts on a GPU, the host would have to wait for it
            return self._allreduce(tensors, average, name)
        return self._timed(tensors, lambda: self._allreduce(tensors, average, name))

    def _allreduce(self, tensors: Sequence[tf.Tensor], average: bool, name: str) -> list[tf.Tensor]:
        # Without `in_chunks`, which other rings need: Horovod's own fusion sums 40 tensors of 1 KB in 3.6 ms.
        device = self._sums_on if all(tensor.dtype.is_floating for tensor in tensors) else HOST
        with self._operation("allreduce", name, tensors, device) as unique:
            carried = [carry(tensor, _REDUCED) for tensor in tensors]
            sums = self._sums([tensor for tensor, _ in carried], unique)
            reduced = averaged(sums, self.members()) if average else sums
            return [back(tensor) for tensor, (_, back) in zip(reduced, carried, strict=True)]

    def _sums(self, tensors: list[tf.Tensor], name: str) -> list[tf.Tensor]:
        sums = list(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            indices = [
                i for i, tensor in enumerate(tensors) if tensor.dtype is dtype and tensor.shape.num_elements() != 0
            ]
            if indices:
                group = [tensors[index] for index in indices]
                label = f"{name}.sum.{dtype.name}"
                reduced = hvd.grouped_allreduce(group, op=hvd.Sum, name=label, ignore_name_scope=True)
                for index, total in zip(indices, reduced, strict=True):
                    sums[index] = total
        return sums

    def _copy(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        return hvd.broadcast(flat, self.source, name=name, ignore_name_scope=True)

    def _gathered(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        return hvd.allgather(tensor, name=name, ignore_name_scope=True)

    def _shut_down(self) -> None:
        # After a sum of all: with a dead member, Horovod's shutdown blocks for the whole timeout of Gloo.
        mpi_ops.shutdown()
