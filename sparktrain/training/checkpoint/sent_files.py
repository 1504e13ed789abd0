"""Gets the files of a snapshot from one member to others that lack it."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import numpy as np

from sparktrain.rundir.folder_checksum import folder_checksum
from sparktrain.state.gangs.memory_parts import PartTransfers
from sparktrain.training.checkpoint.tensor_files import held_files, is_held
from sparktrain.training.collectives.ring import Ring

CHUNK_BYTES = 64 * 2**20
_NAME = "memory_base"
_NUMBER = "number"
"""The file with the random number."""


def send_files(ring: Ring, source: Path | None, target: Path, *, is_new: bool = False) -> Path:
    """The folder with the files of `source` of the member that sends: `source` itself where it is not None.

    The member of rank `ring.source` sends. One on its host reads the files there; others get them over the ring, into
    the new `target`. Every member calls it, and blocks until all have the files; one that does not need them passes any
    folder as `source`. With `is_new` on all members the sender has just written the files: then a random number in a
    file shows which folder is that of its host, and no member reads all of them for a checksum. Raises RingError,
    and OSError when the disk fails.
    """
    sends = ring.rank == ring.source
    offer = json.loads(broadcast_bytes(ring, _offer(source, is_new) if source is not None and sends else b""))
    # A file that a neighbor has is read in place: over the ring 100 MB take longer than the rest of a restart.
    folder = source or _on_this_host(Path(offer["folder"]), offer["identity"], is_new)
    lack = ring.allgather_array(np.array([folder is None], "int64"), name=_NAME)
    if not lack.any():
        assert folder is not None
        return folder
    if folder is None:
        target.mkdir(parents=True)
    for name, size in offer["files"]:
        sent = folder / name if sends and folder is not None else None
        _send_file(ring, sent, target / name if folder is None else None, size)
    return folder or target


def receive_parts(ring: Ring, plan: PartTransfers, own: Path | None, target: Path) -> Path:
    """The folder with the parts of a snapshot that this member needs: `own`, or a new one below `target`.

    `own` is what its agent holds, if anything. Every member calls it with the plan of its gang, and blocks until all
    have their parts. Raises RingError, and OSError when the disk fails.
    """
    folders = [] if own is None else [own]
    for send in plan.sends:
        part = send.part
        lacks = part in plan.needs and (own is None or not held_files(own, part)[0].exists())
        ring.source = send.rank
        try:
            source = _part_alone(own, part) if own is not None and ring.rank == send.rank else None if lacks else target
            received = send_files(ring, source, target / f"{part}")
        finally:
            ring.source = 0
        if lacks:
            folders.append(received)
    return folders[0] if len(folders) == 1 else _joined(folders, target / "joined")


def _part_alone(folder: Path, part: int) -> Path:
    """A folder beside `folder` with links to what a member needs of it that needs this part alone."""
    alone = folder.with_name(f"{folder.name}-{part}")
    alone.mkdir()
    for path in folder.iterdir():
        if not is_held(path) or path in held_files(folder, part):
            (alone / path.name).hardlink_to(path)
    return alone


def _joined(folders: Sequence[Path], target: Path) -> Path:
    """A folder with links to the files of all `folders`; those with one name are equal."""
    target.mkdir(parents=True)
    for name, path in {path.name: path for folder in folders for path in folder.iterdir()}.items():
        (target / name).symlink_to(path)
    return target


def _offer(source: Path, is_new: bool) -> bytes:
    if is_new:
        (source / _NUMBER).write_text(uuid4().hex, encoding="ascii")
    files = [(path.name, path.stat().st_size) for path in sorted(source.iterdir())]
    return json.dumps({"folder": str(source), "identity": _identity(source, is_new), "files": files}).encode()


def _identity(folder: Path, is_new: bool) -> str:
    return (folder / _NUMBER).read_text(encoding="ascii") if is_new else folder_checksum(folder)


def _on_this_host(folder: Path, identity: str, is_new: bool) -> Path | None:
    """`folder` if this process sees it with the same content: one of another host has another name."""
    try:
        return folder if _identity(folder, is_new) == identity else None
    except OSError:
        return None


def _send_file(ring: Ring, source: Path | None, target: Path | None, size: int) -> None:
    """Send the file `source`, write it to `target`, or, with neither, take part alone."""
    with ExitStack() as files:
        read = files.enter_context(source.open("rb")) if source is not None else None
        written = files.enter_context(target.open("xb")) if target is not None else None
        for start in range(0, size, CHUNK_BYTES):
            count = min(CHUNK_BYTES, size - start)
            chunk = read.read(count) if read is not None else bytes(count)
            [sent] = ring.broadcast_arrays([np.frombuffer(chunk, np.uint8)], name=_NAME)
            if written is not None:
                written.write(sent.tobytes())


def broadcast_bytes(ring: Ring, content: bytes) -> bytes:
    """The `content` of the member that sends, on every member."""
    [length] = ring.broadcast_arrays([np.array([len(content)], "int64")], name=_NAME)
    mine = content if ring.rank == ring.source else bytes(int(length[0]))
    [sent] = ring.broadcast_arrays([np.frombuffer(mine, np.uint8)], name=_NAME)
    return sent.tobytes()
