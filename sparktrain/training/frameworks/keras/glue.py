"""Connects the Keras callbacks to the context of a member. Imports Keras."""

from collections.abc import Callable, Mapping
from typing import Any

from sparktrain.base.clock import Clock
from sparktrain.config.environment import JAX
from sparktrain.training.checkpoint.memory_saver import MemorySaver
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.collectives.ring import TENSORFLOW, Ring
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.data.fit_call import settings_digest
from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.keras.callbacks import CallbackDeps
from sparktrain.training.frameworks.keras.callbacks import keras_callbacks as callbacks
from sparktrain.training.frameworks.keras.checkpoint_callbacks import FitCheckpoints
from sparktrain.training.frameworks.keras.consistency import check_equal, check_same_program
from sparktrain.training.frameworks.keras.loss_scaling import weigh_losses


def prepare_keras(ring: Ring) -> None:
    """Have Keras's losses and batch normalization in this process know the ring. Later calls do nothing."""
    if ring.size == 1 or ring.framework == JAX:  # XLA has the loss of the whole batch
        return
    weigh_losses(ring)
    if ring.framework == TENSORFLOW:  # Keras makes no synchronized layer with another backend
        from sparktrain.training.frameworks.tensorflow.optimizers.sync_batch_norm import synchronize_batches

        synchronize_batches(ring)


def keras_callbacks(
    ring: Ring,
    position: Position,
    clock: Clock,
    checkpoints: CheckpointSaver,
    report: Callable[..., None],
    should_stop: Callable[[], bool],
    stepped: Callable[[int, bool], None],
    *,
    params: Mapping[str, Any],
    own_folders: tuple[str, ...],
    memory: MemorySaver | None,
    keep: int,
    healing: RingHealing | None = None,
    **options: Any,
) -> list[Any]:
    """See `TrainContext.keras_callbacks`. Raises SpecError."""

    def compare(model: Any, steps: int | None) -> None:
        check_same_program(ring, model, steps=steps)

    def check(model: Any) -> None:
        check_equal(ring, model)

    position.stages.settings = settings_digest(params)
    deps = CallbackDeps(
        ring=ring,
        position=position,
        clock=clock,
        report=report,
        should_stop=should_stop,
        stepped=stepped,
        compare=compare,
        check=check,
        checkpoints=FitCheckpoints(checkpoints, keep, ring.ps_model),
        own_folders=own_folders,
        memory=memory,
        healing=healing,
    )
    return callbacks(deps, **options)
