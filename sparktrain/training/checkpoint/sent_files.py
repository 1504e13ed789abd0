"""Gets the files of a snapshot from rank 0 to members that lack it."""

import json
from pathlib import Path

import numpy as np

from sparktrain.rundir.folder_checksum import folder_checksum
from sparktrain.training.collectives.ring import Ring

CHUNK_BYTES = 64 * 2**20
_NAME = "memory_base"


def send_files(ring: Ring, source: Path | None, target: Path) -> Path:
    """The folder with the files of rank 0's `source`: `source` itself where it is not None.

    A member on the host of rank 0 reads them there; others get them over the ring, into the new `target`. Every member
    calls it, and blocks until all have the files. Raises RingError, and OSError when the disk fails.
    """
    offer = json.loads(_broadcast(ring, _offer(source) if source is not None and not ring.rank else b""))
    # A file that a neighbor has is read in place: over the ring 100 MB take longer than the rest of a restart.
    folder = source or _on_this_host(Path(offer["folder"]), offer["checksum"])
    lack = ring.allgather_array(np.array([folder is None], "int64"), name=_NAME)
    if not lack.any():
        assert folder is not None
        return folder
    if folder is None:
        target.mkdir(parents=True)
    for name, size in offer["files"]:
        _send_file(ring, folder / name if folder is not None else None, target / name, size)
    return folder or target


def _offer(source: Path) -> bytes:
    files = [(path.name, path.stat().st_size) for path in sorted(source.iterdir())]
    return json.dumps({"folder": str(source), "checksum": folder_checksum(source), "files": files}).encode()


def _on_this_host(folder: Path, checksum: str) -> Path | None:
    """`folder` if this process sees it with the same content: one of another host has another name."""
    try:
        return folder if folder_checksum(folder) == checksum else None
    except OSError:
        return None


def _send_file(ring: Ring, source: Path | None, target: Path, size: int) -> None:
    with (source or target).open("rb" if source is not None else "xb") as file:
        for start in range(0, size, CHUNK_BYTES):
            count = min(CHUNK_BYTES, size - start)
            chunk = file.read(count) if source is not None and not ring.rank else bytes(count)
            [sent] = ring.broadcast_arrays([np.frombuffer(chunk, np.uint8)], name=_NAME)
            if source is None:
                file.write(sent.tobytes())


def _broadcast(ring: Ring, content: bytes) -> bytes:
    """Rank 0's `content`, on every member."""
    [length] = ring.broadcast_arrays([np.array([len(content)], "int64")], name=_NAME)
    mine = content if not ring.rank else bytes(int(length[0]))
    [sent] = ring.broadcast_arrays([np.frombuffer(mine, np.uint8)], name=_NAME)
    return sent.tobytes()
