"""What a `Trainer` of Lightning gets for a trial: a logger that reports, and a callback that saves and resumes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from sparktrain.store.folder_removal import remove
from sparktrain.torch.checkpoint_folder import restored_folder, save_folder
from sparktrain.torch.logged_metrics import LoggedMetrics, must_stop
from sparktrain.training.current_context import context

_FOLDER = "lightning-checkpoint"
_FILE = "lightning.ckpt"


class TrialLogger(Logger):  # type: ignore[misc]  # Lightning is not installed where types are checked
    """Reports what a `LightningModule` logs as metrics of the trial: for `Trainer(logger=...)`.

    The metrics of one step are one report. Parameters are those of the trial, so hyperparameters are not logged.
    Outside of a trial it does nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged = LoggedMetrics()

    @property
    def name(self) -> str:
        """The name of the logger in files of Lightning."""
        return "sparktrain"

    @property
    def version(self) -> str:
        """The number of the trial, from 0."""
        ctx = context()
        return "0" if ctx is None else str(ctx.trial)

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Collect metrics of a step, and report those of the step before. Raises as `TrainContext.report`."""
        self._logged.add(step or 0, metrics)

    def log_hyperparams(self, *_arguments: Any, **_named: Any) -> None:
        """Do nothing: the run has the parameters of each trial."""

    @rank_zero_only  # type: ignore[untyped-decorator]
    def finalize(self, status: str) -> None:
        """Report the metrics of the last step."""
        self._logged.flush()

    @rank_zero_only  # type: ignore[untyped-decorator]
    def end_epoch(self, metrics: Mapping[str, Any]) -> None:
        """Report the metrics of an epoch with its last step: for `TrialCheckpoint`, before stop rules judge."""
        self._logged.extend({name: float(value) for name, value in metrics.items()})
        self._logged.flush()


class TrialCheckpoint(Checkpoint):  # type: ignore[misc]
    """Makes the checkpoint of Lightning that of the trial after each epoch, and ends a training that is to stop.

    For `Trainer(callbacks=[...])`, in place of `ModelCheckpoint`. Outside of a trial it does nothing.
    """

    def __init__(self, *, every: int = 1, keep: int = 2) -> None:
        """`every` is a number of epochs, `keep` how many checkpoints of the trial stay."""
        super().__init__()
        self._every = every
        self._keep = keep

    @property
    def ckpt_path(self) -> str | None:
        """The file of the newest checkpoint, for `Trainer.fit(ckpt_path=...)`; None without one.

        Blocks on the local disk. Raises as `restored_folder`.
        """
        folder = restored_folder()
        return None if folder is None else str(Path(folder, _FILE))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report, save, and judge. Every member calls it; blocks until all do. Raises as `save_folder`."""
        ctx = context()
        if ctx is None:
            return
        for logger in trainer.loggers:
            if isinstance(logger, TrialLogger):
                logger.end_epoch(trainer.callback_metrics)
        if (trainer.current_epoch + 1) % self._every == 0:
            # Where a strategy writes shards, all members write below the path of rank 0, on each host.
            folder = trainer.strategy.broadcast(str(Path(ctx.log_dir).parent / _FOLDER))
            trainer.save_checkpoint(Path(folder, _FILE))
            save_folder(trainer.global_step, folder, keep=self._keep)
            if ctx.local_rank == 0:
                remove(Path(folder))
        if must_stop():
            trainer.should_stop = True
