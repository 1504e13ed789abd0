"""A folder of files as the checkpoint of a trial: for libraries that write checkpoints to folders of their own."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch.distributed as dist

from sparktrain.errors import CheckpointError, UserError
from sparktrain.store.folder_removal import remove
from sparktrain.training.checkpoint.extras import FileContent
from sparktrain.training.checkpoint.tensor_files import Array
from sparktrain.training.current_context import context

_PIECE_BYTES = 2**24
"""The most bytes of a file that are in the memory of a member at once, for each member."""
_RESTORED = "restored-folder"
_COPIES = "copied-folder"
"""Beside the log directory of a member, as its snapshots are."""


def save_folder(step: int, folder: str | Path, *, keep: int = 2) -> None:
    """Make the files in `folder` the checkpoint of the trial after `step` finished steps. Outside of a trial: nothing.

    Every member of a gang calls it, once it has written its own files. The checkpoint has the files of all members,
    with their paths below `folder`; of equal paths those of the lowest rank. `keep` is how many checkpoints of the
    trial stay. Blocks until all members call it, while it copies the files on the local disk, and as
    `CheckpointSaver.save`: the copies are gone once they are stored, and never in memory as a whole. Raises OSError,
    and ValueError for a step that does not grow.
    """
    ctx = context()
    if ctx is None:
        return
    has_others = dist.is_initialized() and dist.get_world_size() > 1
    if has_others:
        dist.barrier()  # members may share the folder, and what another one still writes is no file yet
    files = {path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*") if path.is_file()}
    # The library may write to the same files again, so the checkpoint has copies.
    copies = Path(ctx.log_dir).parent / _COPIES
    copies.mkdir()
    try:
        contents = _received(files, copies) if has_others else {}
        if ctx.rank == 0:
            for number, (name, path) in enumerate(files.items()):
                copy = copies / f"own-{number}"
                shutil.copyfile(path, copy)
                contents[name] = _mapped(copy)
            ctx.checkpoint.save(step, keep=keep, files=contents)
    finally:
        remove(copies)


def restored_folder() -> str | None:
    """A local folder with the files of the newest `save_folder`; None without one, and outside of a trial.

    Every member calls it before it trains, and gets a folder of its own, which lasts as long as its process. Blocks on
    the local disk. Raises UserError for a checkpoint that `save_folder` has not written, CheckpointError and OSError.
    """
    ctx = context()
    restored = None if ctx is None else ctx.checkpoint.restore()
    if ctx is None or restored is None:
        return None
    if "files" not in restored.extra:
        raise UserError(
            f"the checkpoint of step {restored.step} is no folder of files: it was saved by ctx.checkpoint.save(), so "
            "restore it by ctx.checkpoint.restore(), or train under another name"
        )
    folder = Path(ctx.log_dir).parent / _RESTORED
    for name, pieces in restored["files"].items():
        path = folder / name
        if ".." in path.parts or not path.is_relative_to(folder):  # names come from another process
            raise CheckpointError(
                f"the checkpoint of step {restored.step} names the file {name!r}, which is not in its folder: delete "
                "that checkpoint, and the trial resumes from the one before it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                piece.tofile(file)
    return str(folder)


def _mapped(path: Path) -> list[Array]:
    """The pieces of a file that nothing changes any more. They stay after the file is deleted."""
    if not (size := path.stat().st_size):
        return []
    content = FileContent(path, "uint8", "r")
    return [content[start : start + _PIECE_BYTES] for start in range(0, size, _PIECE_BYTES)]


def _received(files: Mapping[str, Path], folder: Path) -> dict[str, list[Array]]:
    """On rank 0 the files that only other members see, such as the states of their generators: copies in `folder`.

    All members call it, with their `files`, and it blocks until they do.
    """
    sizes: list[dict[str, int]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(sizes, {name: path.stat().st_size for name, path in files.items()})
    lower: set[str] = set()
    missing: list[dict[str, int]] = []
    for listed in sizes:
        missing.append({name: size for name, size in listed.items() if name not in lower} if missing else {})
        lower.update(listed)
    own = _pieces({name: files[name] for name in missing[dist.get_rank()]})
    copies = {
        name: folder / f"{rank}-{number}" for rank, listed in enumerate(missing) for number, name in enumerate(listed)
    }
    for _ in range(max(sum(size // _PIECE_BYTES + 1 for size in listed.values()) for listed in missing)):
        gathered: list[tuple[str, bytes] | None] | None = None if dist.get_rank() else [None for _ in missing]
        dist.gather_object(next(own, None), gathered)
        for name, piece in filter(None, gathered or ()):
            with copies[name].open("ab") as file:
                file.write(piece)
    return {} if dist.get_rank() else {name: _mapped(copy) for name, copy in copies.items()}


def _pieces(files: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Each file in pieces, the last of them shorter than the others, or empty."""
    for name, path in files.items():
        with path.open("rb") as file:
            while len(piece := file.read(_PIECE_BYTES)) == _PIECE_BYTES:
                yield name, piece
            yield name, piece
