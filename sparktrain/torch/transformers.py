"""What a `Trainer` of transformers gets for a trial: a callback that reports, saves and stops."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from sparktrain.torch.checkpoint_folder import restored_folder, save_folder
from sparktrain.torch.logged_metrics import LoggedMetrics, must_stop


class TrialCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not installed where types are checked
    """Reports what the `Trainer` logs, makes its checkpoints those of the trial, and ends a training that is to stop.

    For `Trainer(callbacks=[...])`. Outside of a trial it does nothing.
    """

    def __init__(self, *, keep: int = 2) -> None:
        """`keep` is how many checkpoints of the trial stay, beside those in `output_dir`."""
        self._keep = keep
        self._logged = LoggedMetrics()

    @property
    def checkpoint(self) -> str | None:
        """The folder of the newest checkpoint, for `Trainer.train(resume_from_checkpoint=...)`; None without one.

        Blocks on the local disk. Raises as `restored_folder`.
        """
        return restored_folder()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Collect metrics of a step, and report those of the step before. Raises as `TrainContext.report`."""
        if state.is_world_process_zero:
            self._logged.add(state.global_step, logs or {})

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report what was logged after the step before."""
        self._logged.flush()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the metrics of the last step."""
        self._logged.flush()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report, and end the training where the run asks for it. Every member calls it; blocks until all do."""
        self._judge(control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Make a checkpoint of the `Trainer` that of the trial. Every member calls it; blocks until all do."""
        folder = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        save_folder(state.global_step, folder, keep=self._keep)
        self._judge(control)

    def _judge(self, control: TrainerControl) -> None:
        self._logged.flush()
        if must_stop():
            control.should_training_stop = True
