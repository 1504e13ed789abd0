"""A folder of files as the checkpoint of a trial: for libraries that write checkpoints to folders of their own."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch.distributed as dist

from sparktrain.errors import CheckpointError, UserError
from sparktrain.training.current_context import context

Content = np.ndarray[tuple[int], np.dtype[np.uint8]]

_RESTORED = "restored-folder"
"""Beside the log directory of a member, as its snapshots are."""


def save_folder(step: int, folder: str | Path, *, keep: int = 2) -> None:
    """Make the files in `folder` the checkpoint of the trial after `step` finished steps. Outside of a trial: nothing.

    Every member of a gang calls it, once it has written its own files. The checkpoint has the files of all members,
    with their paths below `folder`; of equal paths those of the lowest rank. `keep` is how many checkpoints of the
    trial stay. Blocks until all members call it, while it reads the files, and as `CheckpointSaver.save`. Raises
    OSError, and ValueError for a step that does not grow.
    """
    ctx = context()
    if ctx is None:
        return
    has_others = dist.is_initialized() and dist.get_world_size() > 1
    if has_others:
        dist.barrier()  # members may share the folder, and what another one still writes is no file yet
    files = {path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*") if path.is_file()}
    of_others = _contents_of_others(files) if has_others else {}
    if ctx.rank == 0:
        ctx.checkpoint.save(step, keep=keep, files=_contents(files) | of_others)


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
    for name, content in restored["files"].items():
        path = folder / name
        if ".." in path.parts or not path.is_relative_to(folder):  # names come from another process
            raise CheckpointError(
                f"the checkpoint of step {restored.step} names the file {name!r}, which is not in its folder: delete "
                "that checkpoint, and the trial resumes from the one before it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        content.tofile(path)
    return str(folder)


def _contents(files: Mapping[str, Path]) -> dict[str, Content]:
    contents = {}
    for name, path in files.items():
        contents[name] = np.fromfile(path, np.uint8)
        contents[name].flags.writeable = False  # so that the copy of a checkpoint is this one
    return contents


def _contents_of_others(files: Mapping[str, Path]) -> dict[str, Content]:
    """On rank 0 the files that only other members see, such as the states of their generators."""
    names: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(names, list(files))
    rank = dist.get_rank()
    of_lower_ranks = {name for listed in names[:rank] for name in listed}
    missing = _contents({name: path for name, path in files.items() if rank and name not in of_lower_ranks})
    gathered: list[dict[str, Content]] | None = None if rank else [{} for _ in names]
    dist.gather_object(missing, gathered)
    return {name: content for member in gathered or () for name, content in member.items()}
