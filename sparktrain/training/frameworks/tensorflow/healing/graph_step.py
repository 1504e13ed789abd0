"""The step of `fit` on TensorFlow in a gang that heals: see `HealingStep`."""

import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.frameworks.keras.healing.healing_step import GRADIENTS, HealingStep, early_metrics
from sparktrain.training.frameworks.tensorflow import variable_memory
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.healing.graph_values import GraphValues
from sparktrain.training.frameworks.tensorflow.healing.step_reader import StepReader

_INTERNALS = ("_autoconvert_optionals", "_distribute_strategy")
"""What the step uses of Keras's trainer; another version of Keras may lack it."""


def healing_step(model: Any, healing: RingHealing) -> "GraphStep | None":
    """See `Framework.fits`."""
    has_all = all(hasattr(model, name) for name in _INTERNALS)
    if not has_all or model.run_eagerly or model._distribute_strategy is not None:
        return None
    return GraphStep(model, healing)


class GraphStep(HealingStep):
    """See base class. `fit` passes an iterator, and the batch is read in the graph of the step."""

    values: GraphValues

    def __init__(self, model: Any, healing: RingHealing) -> None:
        super().__init__(model, GraphValues(model, healing.ring, waits=healing.waits), healing.ring.continuity)
        self._ring = healing.ring
        self._readers: dict[str, StepReader] = {}
        """By the element spec of their iterators."""
        self._iterator: Any = None
        self._reader: StepReader
        """Of the iterator."""

    def prepare(self, spec: Any) -> None:
        """See base class. TensorFlow makes what runs of it, too."""
        empty = tf.data.Dataset.from_generator(lambda: (), output_signature=spec)
        self._reader_for(spec).instantiate(iter(empty))

    def make_room(self) -> threading.Thread | None:
        """See base class. Only for large weights on a CPU."""
        return variable_memory.make_room(self._model)

    @property
    def repeats_alone(self) -> bool:
        """Whether the traced functions call collectives for gradients alone."""
        return all(name.startswith(GRADIENTS) for name in self._ring.traced_names)

    def train_by_itself(self) -> None:
        """Trace a step without the others for the newest batch, and train it."""
        with self._continuity.by_itself():
            tf.function(self._step)(self._reader.batch)

    def _take(self, source: Iterator[Any]) -> None:
        if source is not self._iterator:
            self._reader = self._reader_for(source.element_spec)  # type: ignore[attr-defined] # of TensorFlow
            self._iterator = source

    def _trace(self) -> None:
        self._reader.trace(self._iterator)

    def _train_next(self) -> Any:
        return self._reader.train_next(self._iterator)

    def _train_again(self) -> Any:
        return self._reader.train_again()

    def _pass_over(self) -> None:
        next(self._iterator)

    def _reader_for(self, spec: Any) -> StepReader:
        key = repr(spec)
        if key not in self._readers:
            self._readers[key] = StepReader(self._step, spec)
        return self._readers[key]

    @as_written
    def _step(self, batch: Any) -> Any:
        model = self._model

        @as_written
        def train(data: Any) -> Any:
            # Before all else of the step: where a collective has failed, the values before it are kept.
            with tf.control_dependencies(self.values.keep()), early_metrics(model):
                return model.train_step(data)

        return model.distribute_strategy.run(model._autoconvert_optionals(train), args=(batch,))
