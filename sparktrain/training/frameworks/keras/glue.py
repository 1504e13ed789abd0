"""Connects the Keras callbacks to the context of a member. Imports Keras."""

from collections.abc import Callable, Mapping
from typing import Any

from sparktrain.base.clock import Clock
from sparktrain.config.environment import JAX
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.collectives.ring import TENSORFLOW, Ring
from sparktrain.training.data.fit_call import settings_digest
from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.keras.callbacks import CallbackDeps
from sparktrain.training.frameworks.keras.callbacks import keras_callbacks as callbacks
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FitCheckpoints
from sparktrain.training.frameworks.keras.consistency import check_equal, check_same_program
from sparktrain.training.frameworks.keras.loss_scaling import weigh_losses
from sparktrain.training.gang_join import JoinedGang


def prepare_keras(ring: Ring) -> None:
    """Have Keras's losses and batch normalization in this process know the ring. Later calls do nothing."""
    if ring.size == 1 or ring.framework == JAX:  # XLA has the loss of the whole batch
        return
    weigh_losses(ring)
    if ring.framework == TENSORFLOW:  # Keras makes no synchronized layer with another backend
        from sparktrain.training.frameworks.tensorflow.optimizers.sync_batch_norm import synchronize_batches

        synchronize_batches(ring)


def keras_callbacks(
    gang: JoinedGang,
    position: Position,
    clock: Clock,
    checkpoints: CheckpointSaver,
    report: Callable[..., None],
    should_stop: Callable[[], bool],
    stepped: Callable[[int, bool], None],
    *,
    params: Mapping[str, Any],
    own_folders: tuple[str, ...],
    memory_checkpoint: str | None,
    keep: int,
    **options: Any,
) -> list[Any]:
    """See `TrainContext.keras_callbacks`. Raises SpecError."""
    boundary = gang.boundary(memory_checkpoint, clock, should_stop)
    ring = boundary.ring
    position.stages.settings = settings_digest(params)
    deps = CallbackDeps(
        boundary=boundary,
        position=position,
        clock=clock,
        report=report,
        stepped=stepped,
        compare=lambda model, steps: check_same_program(ring, model, steps=steps),
        check=lambda model: check_equal(ring, model),
        checkpoints=FitCheckpoints(checkpoints, keep, ring.ps_model),
        own_folders=own_folders,
    )
    return callbacks(deps, **options)
