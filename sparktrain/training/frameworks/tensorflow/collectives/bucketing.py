"""Joins small tensors and cuts large ones on their way through a ring.

Each collective costs its latency, so many small ones are slow; a large one is slow too if the transport starts to send
only when all of it is there. Both as DistributedDataParallel's buckets (Li et al., "PyTorch
Distributed", VLDB 2020, section 3.2.3), but with a size at which TensorFlow's gRPC transport is fastest.
"""

from collections.abc import Callable, Collection, Sequence

import tensorflow as tf

Back = Callable[[tf.Tensor], tf.Tensor]
CHUNK_BYTES = 4 * 2**20
"""The most that one collective carries.

Measured with TensorFlow's collectives, two members on one host of two cores: 100 MB in one piece takes 430-1,000 ms, in
pieces of 12 MB 190-410 ms, of 4 MB 200-220 ms, of 1 MB 220-250 ms; 40 tensors of 1 KB take 49 ms one by one, and
3.5 ms joined.
"""

Operate = Callable[[tf.Tensor, str], tf.Tensor]


def in_chunks(tensors: Sequence[tf.Tensor], operate: Operate) -> list[tf.Tensor]:
    """Each of `tensors` after `operate`, in its own shape.

    `operate` gets flat tensors of one type each and a label that is unique within this call; it keeps their lengths.
    Tensors without elements are not sent. A tensor with a size that is unknown while a function is traced is sent
    alone and whole.
    """
    results: dict[int, tf.Tensor] = {}
    small: dict[tf.DType, list[int]] = {}
    for index, tensor in enumerate(tensors):
        count = tensor.shape.num_elements()
        if count == 0:
            results[index] = tensor
        elif count is not None and count * tensor.dtype.size <= CHUNK_BYTES:
            small.setdefault(tensor.dtype, []).append(index)
        else:
            results[index] = _cut(tensor, count, operate, f"{index}")
    for dtype, indices in small.items():
        for number, group in enumerate(_groups(tensors, indices)):
            joined = _joined([tensors[index] for index in group], operate, f"{dtype.name}-{number}")
            results.update(zip(group, joined, strict=True))
    return [results[index] for index in range(len(tensors))]


def _cut(tensor: tf.Tensor, count: int | None, operate: Operate, label: str) -> tf.Tensor:
    flat = tf.reshape(tensor, [-1])
    if count is None:
        return tf.reshape(operate(flat, label), tf.shape(tensor))
    chunk_length = CHUNK_BYTES // tensor.dtype.size
    lengths = [min(chunk_length, count - start) for start in range(0, count, chunk_length)]
    parts = [operate(part, f"{label}-{number}") for number, part in enumerate(tf.split(flat, lengths))]
    return tf.reshape(tf.concat(parts, 0), tensor.shape)


def _groups(tensors: Sequence[tf.Tensor], indices: Sequence[int]) -> list[list[int]]:
    """`indices` in their order, in groups of CHUNK_BYTES at most."""
    groups: list[list[int]] = []
    room = 0
    for index in indices:
        size = tensors[index].shape.num_elements() * tensors[index].dtype.size
        if size > room:
            groups.append([])
            room = CHUNK_BYTES
        groups[-1].append(index)
        room -= size
    return groups


def _joined(tensors: Sequence[tf.Tensor], operate: Operate, label: str) -> list[tf.Tensor]:
    if len(tensors) == 1:
        return [tf.reshape(operate(tf.reshape(tensors[0], [-1]), label), tensors[0].shape)]
    joined = operate(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0), label)
    parts = tf.split(joined, [tensor.shape.num_elements() for tensor in tensors])
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def averaged(sums: Sequence[tf.Tensor], size: int | tf.Tensor) -> list[tf.Tensor]:
    """The mean of `size` members from each sum over them; of integers, rounded down."""
    return [divided(total, size) for total in sums]


def divided(tensor: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """`tensor` divided by `size`, in its own type; integers are rounded down."""
    divisor = size if isinstance(size, int) else tf.cast(size, tensor.dtype)
    return tensor // divisor if tensor.dtype.is_integer else tensor / divisor


def of_equals(tensors: Sequence[tf.Tensor], size: int, average: bool) -> list[tf.Tensor]:
    """The sums, or the means, over `size` members that all have these `tensors`."""
    return list(tensors) if average else [tensor * size for tensor in tensors]


def carry(tensor: tf.Tensor, dtypes: Collection[tf.DType]) -> tuple[tf.Tensor, Back]:
    """`tensor` as one of `dtypes`, and the cast back to its own; complex numbers get one more axis, of 2.

    Sums of integers wrap as those of their own type do. Raises TypeError for a type without such a cast.
    """
    dtype = tensor.dtype
    if dtype in dtypes:
        return tensor, lambda result: result
    if dtype in _SAME_BITS:
        return tf.bitcast(tensor, _SAME_BITS[dtype]), lambda result: tf.bitcast(result, dtype)
    wider = next((candidate for candidate in _wider(dtype) if candidate in dtypes), None)
    if wider is None:
        raise TypeError(f"a tensor of type {dtype.name} cannot travel in a ring; cast it to a number's type first")
    return tf.cast(tensor, wider), lambda result: tf.cast(result, dtype)


_SAME_BITS = {tf.uint64: tf.int64, tf.complex64: tf.float32, tf.complex128: tf.float64}


def _wider(dtype: tf.DType) -> tuple[tf.DType, ...]:
    if dtype.is_bool:
        return (tf.uint8, tf.int32)
    if dtype.is_integer:
        return (tf.int32, tf.int64) if dtype.size < tf.int32.size else (tf.int64,)
    return (tf.float32,) if dtype.is_floating and dtype.size < tf.float32.size else ()
