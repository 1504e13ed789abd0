"""A ring on TensorFlow's own collectives: needs no compiler, no Horovod, and no patch of Keras.

The members are servers of the TensorFlow cluster that TF_CONFIG describes, configured as MultiWorkerMirroredStrategy
configures it: a strategy that a program makes later finds its server there. Operations run on the CPU; tensors of a
GPU travel through host memory. TensorFlow matches the operations of the members by keys, so a key must be equal on
all of them, and belong to one name and one length alone: `_instance_key` makes it of both.

The first collective has the timeout of the gang's start. Later ones have it only where no `CallWatch` guards them
(`NO_TIMEOUT`). TensorFlow's server listens on all interfaces, without authentication, for the life of the process:
use such a ring only in a network with trusted hosts.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context

from sparktrain.base.clock import SystemClock
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError, FunctionError, RingError, StrategyError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.frameworks.tensorflow.collectives.bucketing import averaged, carry, in_chunks
from sparktrain.training.frameworks.tensorflow.collectives.named_ring import NamedRing
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written

_LEADER = f"/job:{Role.CHIEF.value}/replica:0/task:0"
_GROUP_KEY = 2**30
"""Of the ring's operations: strategies count theirs from 1."""
_FUSED = ("CollectiveReduce",)
"""What a strategy asks of TensorFlow's optimizer; it concerns no operation of the ring."""
_KEYS = 2**31
_MIX = 2654435761  # Knuth, The Art of Computer Programming 3, section 6.4: multiplicative hashing

_REDUCED = (tf.float32, tf.float64, tf.half, tf.bfloat16, tf.int32, tf.int64)
_MOVED = (tf.float32, tf.float64, tf.half, tf.int32, tf.int64)


NO_TIMEOUT = 0.0
"""For operations that others guard: the connection and the agent's lease detect the loss of a process or a host,
`hang_timeout` a member that hangs, and `CallWatch` members that call different operations. For each operation with a
timeout TensorFlow keeps a thread that sleeps for so long, and a host has room for those of some thousand steps."""

_LEADER_FIRST_S = 1.0
"""How much later than on rank 0 an operation times out on the other members, which ask rank 0 for its parameters.

When the answer comes while their own timeout ends the operation, TensorFlow uses memory that it has freed: with equal
timeouts about one of 80 gangs that called different operations ended with SIGSEGV in place of an error."""


def join(joining: Joining) -> Ring:
    """See `sparktrain.training.collectives.backend.JoinRing`. No TensorFlow operation may have run in this process.

    Raises FunctionError when one has, StrategyError when a strategy has connected the members already.
    """
    formation = joining.formation
    if formation.size == 1:
        return LocalRing()
    joining.release_port()
    _start_server(formation)
    # The first collective has a timeout; members with slower imports must not use it up.
    barrier.wait_for_all(joining, SystemClock())
    ring = CollectiveRing(formation, joining.timeout_s)
    try:
        ring.allreduce([tf.zeros([1])], average=False, name="first")
    except RingError as error:
        raise FormError(f"the ring of {formation.size} members could not be formed: {error}") from error
    if joining.slow_s is not None:
        # For each operation with a timeout TensorFlow keeps a thread that sleeps for an hour: 800 steps left 5,000 of
        # them, and a training ended where the host had no more.
        ring.timeout_s = NO_TIMEOUT
    return ring


def _start_server(formation: Formation) -> None:
    """Start this member's server of the cluster. Raises FormError, FunctionError, StrategyError."""
    eager = context.context()
    if eager._collective_leader is not None:
        raise StrategyError(
            "ctx.strategy() connects the members of this gang in place of a ring, which ctx.keras_callbacks(), "
            "ctx.distribute() and ctx.allreduce() need: leave these out, and use ctx.report and ctx.checkpoint; or "
            "leave ctx.strategy() out, and train on a ring"
        )
    job = formation.role.value
    index = formation.index
    cluster = tf.train.ClusterSpec(formation.cluster()).as_cluster_def()
    server = tensorflow_server_pb2.ServerDef(cluster=cluster, job_name=job, task_index=index, protocol="grpc")
    server.default_session_config.experimental.collective_group_leader = _LEADER
    try:
        eager.configure_collective_ops(
            collective_leader=_LEADER,
            scoped_allocator_enabled_ops=_FUSED,
            device_filters=(f"/job:{job}/task:{index}",),
        )
        eager.enable_collective_ops(server)
    except RuntimeError as error:
        raise FunctionError(
            "a gang of backend 'tensorflow' cannot be formed in a process that has run a TensorFlow operation: "
            "move what the training function's module does with TensorFlow when imported into the function"
        ) from error
    try:
        eager.ensure_initialized()
    except tf.errors.OpError as error:
        mine = formation.mine
        raise FormError(
            f"{barrier.this_member(formation)}: TensorFlow's server cannot listen on port {mine.port}; another process "
            f"has taken it meanwhile, and the gang restarts with another port ({error.message})"
        ) from error


class CollectiveRing(NamedRing):
    """See base class. Made by `join`."""

    # TensorFlow ends all operations of a process with the first one that has failed, and may crash in a later one.
    _ends_with_error = True

    def __init__(self, formation: Formation, timeout_s: float) -> None:
        super().__init__(formation, timeout_s, _MOVED)

    @as_written
    def allreduce(self, tensors: Sequence[tf.Tensor], *, average: bool, name: str) -> list[tf.Tensor]:
        """See base class."""
        return self._timed(tensors, lambda: self._allreduce(tensors, average, name))

    def _allreduce(self, tensors: Sequence[tf.Tensor], average: bool, name: str) -> list[tf.Tensor]:
        with self._operation("allreduce", name, tensors) as unique:
            carried = [carry(tensor, _REDUCED) for tensor in tensors]

            def reduce(flat: tf.Tensor, label: str) -> tf.Tensor:
                total = self._sum(flat, f"{unique}/sum/{label}")
                return averaged([total], self.size)[0] if average else total

            reduced = in_chunks([tensor for tensor, _ in carried], reduce)
            return [back(tensor) for tensor, (_, back) in zip(reduced, carried, strict=True)]

    def _sum(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        return self._run(tf.raw_ops.CollectiveReduceV2, name, input=flat, merge_op="Add", final_op="Id", **_UNORDERED)

    def _gathered(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        # TensorFlow gathers parts of one shape alone: their lengths travel first, and shorter parts are padded.
        lengths = self._gather(tf.shape(tensor, tf.int64)[:1], f"{name}/lengths")
        longest = tf.reduce_max(lengths)
        padding = [[0, longest - tf.shape(tensor, tf.int64)[0]]] + [[0, 0]] * (tensor.shape.rank - 1)
        inner_shape = tf.shape(tensor, tf.int64)[1:]
        flat = self._gather(tf.reshape(tf.pad(tensor, padding), [-1]), f"{name}/values")
        rows = tf.reshape(flat, tf.concat([[self.size, longest], inner_shape], 0))
        gathered = tf.boolean_mask(rows, tf.sequence_mask(lengths, longest))
        return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])

    def _gather(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        return self._run(tf.raw_ops.CollectiveGatherV2, name, input=flat, **_UNORDERED)

    def _copy(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        if self.rank == 0:
            return self._run(tf.raw_ops.CollectiveBcastSendV2, name, input=flat)
        key = _instance_key(name, flat)
        return self._call(tf.raw_ops.CollectiveBcastRecvV2, key, T=flat.dtype, shape=tf.shape(flat))

    def _run(self, operation: Callable[..., tf.Tensor], name: str, input: tf.Tensor, **arguments: Any) -> tf.Tensor:
        return self._call(operation, _instance_key(name, input), input=input, **arguments)

    def _call(self, operation: Callable[..., tf.Tensor], key: int | tf.Tensor, **arguments: Any) -> tf.Tensor:
        return operation(
            group_size=self.size,
            group_key=_GROUP_KEY,
            instance_key=key,
            communication_hint="ring",
            timeout_seconds=self._operation_timeout_s(),
            **arguments,
        )

    def _operation_timeout_s(self) -> float:
        if self.rank == 0 or self.timeout_s == NO_TIMEOUT:
            return self.timeout_s
        return self.timeout_s + _LEADER_FIRST_S


_UNORDERED: dict[str, Any] = {"ordering_token": []}


def _instance_key(name: str, flat: tf.Tensor) -> int | tf.Tensor:
    """TensorFlow's key of the operation: equal on all members, and only for the same name and length.

    TensorFlow stores the shape of the first tensor of each key, and refuses any other.
    """
    base = zlib.crc32(f"{name}/{flat.dtype.name}".encode())
    if flat.shape[0] is not None:
        return int(base + flat.shape[0] % _KEYS * _MIX) % _KEYS
    return tf.cast((base + tf.size(flat, tf.int64) % _KEYS * _MIX) % _KEYS, tf.int32)
