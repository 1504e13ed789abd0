"""Sends the files of a snapshot from rank 0 to members that lack it, over the ring. Imports TensorFlow."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from sparktrain.training.collectives.ring import Ring

CHUNK_BYTES = 64 * 2**20
_NAME = "memory_base"


def send_files(ring: Ring, source: Path | None, target: Path) -> Path:
    """The folder with the files of rank 0's `source`: `source` itself where it is not None, else the new `target`.

    Every member calls it, and blocks until all have the files. Raises RingError, and OSError when the disk fails.
    """
    names = sorted(each.name for each in source.iterdir()) if source is not None else []
    sizes = [(name, (source / name).stat().st_size) for name in names] if source is not None else []
    listing = _broadcast(ring, json.dumps(sizes).encode())
    if source is None:
        target.mkdir(parents=True)
    for name, size in json.loads(listing):
        _send_file(ring, source / name if source is not None else None, target / name, size)
    return target if source is None else source


def _send_file(ring: Ring, source: Path | None, target: Path, size: int) -> None:
    with (source or target).open("rb" if source is not None else "xb") as file:
        for start in range(0, size, CHUNK_BYTES):
            count = min(CHUNK_BYTES, size - start)
            chunk = file.read(count) if source is not None and not ring.rank else bytes(count)
            [sent] = ring.broadcast([tf.constant(np.frombuffer(chunk, np.uint8))], name=_NAME)
            if source is None:
                file.write(np.asarray(sent).tobytes())


def _broadcast(ring: Ring, content: bytes) -> bytes:
    """Rank 0's `content`, on every member."""
    [length] = ring.broadcast([tf.constant([len(content)], tf.int64)], name=_NAME)
    mine = content if not ring.rank else bytes(int(np.asarray(length)[0]))
    [sent] = ring.broadcast([tf.constant(np.frombuffer(mine, np.uint8))], name=_NAME)
    return np.asarray(sent).tobytes()
