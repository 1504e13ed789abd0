"""Copies the newest checkpoint of a run to a local folder, for programs of torch alone."""

from pathlib import Path

from sparktrain.base.ids import TrialId
from sparktrain.errors import CheckpointError, SpecError
from sparktrain.rundir.checkpoints import fetch
from sparktrain.runs.history import look
from sparktrain.runs.locate import run_in


def copy_newest(directory: str, folder: Path, trial: int) -> int:
    """See `sparktrain.torch.copy_checkpoint`."""
    if folder.exists():
        raise SpecError(f"folder ({folder}) exists: pass a new one, which gets the files of one checkpoint")
    place = run_in(directory)
    stored = look(place.store, place.layout)
    trials = {} if stored is None else stored.sweep().trials
    if trial not in trials:
        raise SpecError(f"trial ({trial}) must be one of the {len(trials)} of {directory}")
    newest = trials[TrialId(trial)].checkpoints.newest
    if newest is None:
        raise CheckpointError(
            f"trial {trial} of {directory} has no checkpoint: have its function call ctx.checkpoint.save()"
        )
    fetch(place.store, newest, folder)
    return newest.step
