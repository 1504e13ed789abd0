"""Members of a ring that believe to have GPUs and NCCL: what they trace is for a GPU, and runs on the CPU."""

from typing import Any

import tensorflow as tf

from sparktrain.training.collectives import gpu_identity
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.ring import Ring


def joins(joining: Joining, backend: str, uuids: list[str]) -> dict[str, Any]:
    """Join, reduce and broadcast; `uuids` has the GPU of each rank, or nothing for a Horovod without NCCL."""
    from sparktrain.training.frameworks.tensorflow.collectives import horovod_ring

    own = uuids[joining.formation.rank]
    gpu_identity.gpu_uuid = lambda: own.encode()  # type: ignore[assignment]
    horovod_ring.mpi_ops.nccl_built = lambda: 23203 if own else 0
    ring = horovod_ring.join(joining)
    value = tf.constant([float(ring.rank), 1.0])
    [floats] = ring.allreduce([value], average=False, name="floats")
    [whole] = ring.allreduce([tf.constant([ring.rank])], average=False, name="integers")
    [sent] = ring.broadcast([value], name="sent")
    found = {"values": [each.numpy().tolist() for each in (floats, whole, sent)], "on": devices_of(ring)}
    ring.close()
    return found


def devices_of(ring: Ring) -> dict[str, str]:
    """The devices of Horovod's operations in a graph, by type of operation and tensor."""

    @tf.function
    def step(floats: tf.Tensor, whole: tf.Tensor) -> None:
        ring.allreduce([floats], average=True, name="step-floats")
        ring.allreduce([whole], average=False, name="step-integers")
        ring.broadcast([floats], name="step-sent")

    graph = step.get_concrete_function(tf.zeros([2]), tf.zeros([2], tf.int32)).graph
    operations = [each for each in graph.get_operations() if each.type.startswith("Horovod")]
    return {f"{each.type} {each.inputs[0].dtype.name}": each.device for each in operations}
