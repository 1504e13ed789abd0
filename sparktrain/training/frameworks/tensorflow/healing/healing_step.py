"""The step of `fit` in a gang that heals: it takes the place of Keras's own train function, and can be repeated."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import Continuity
from sparktrain.training.collectives.ring_errors import is_ring_error
from sparktrain.training.frameworks.tensorflow.collectives.op_names import as_written
from sparktrain.training.frameworks.tensorflow.healing.step_reader import StepReader
from sparktrain.training.frameworks.tensorflow.healing.step_values import StepValues


class HealingStep:
    """Trains one batch of the iterator that `fit` passes, and keeps the batch until its step has ended.

    It belongs to the thread that trains.
    """

    def __init__(
        self,
        model: Any,
        values: StepValues,
        continuity: Continuity,
        *,
        arrive: Callable[[], bool],
        before: Callable[[], None],
        heal: Callable[[BaseException], bool],
        on_end: Callable[[], None],
    ) -> None:
        """`arrive` is called before the first step, once it is traced; `heal` after an error of the ring, which it
        raises where the training cannot continue. Both return whether this member is to train the batch; if not, it
        has the state after the step. `before` and `on_end` are called before and after each step.
        """
        self._model = model
        self._values = values
        self._continuity = continuity
        self._arrive = arrive
        self._before = before
        self._heal = heal
        self._on_end = on_end
        self._readers: dict[str, StepReader] = {}
        """By the element spec of their iterators."""
        self._iterator: Any = None
        self._reader: StepReader | None = None
        """Of the iterator."""
        self._arrived = False
        self._retired = False
        self._replacement: Any = None
        """An iterator over what is left of the data: its batches take the place of those of a broken step."""

    def retire(self) -> None:
        """Train without healing from now on: another `fit` of the model uses the traced step."""
        self._retired = True

    def __call__(self, iterator: Any) -> Any:
        """The logs of the step. Raises StopIteration at the end of the data, and what training raises."""
        reader = self._reader_of(iterator)
        self._replacement = None
        if self._retired:
            return reader.train_next(iterator)
        trains = True
        if not self._arrived:
            self._arrived = True
            # Tracing calls collectives that the others called when they traced: until it ends they are echoes.
            reader.trace(iterator)
            trains = self._arrive()
        self._before()
        if self._replacement is not None:
            iterator = self._replacement
            self._replacement = None
            reader = self._reader_of(iterator)
        outputs = None
        if trains:
            outputs = self._trained(reader, iterator)
        else:
            next(iterator)
        self._on_end()
        return self._model.get_metrics_result() if outputs is None else outputs

    def trace(self, spec: Any) -> None:
        """Trace the step for batches of `spec` before there is one, and have TensorFlow make what runs of it."""
        empty = tf.data.Dataset.from_generator(lambda: (), output_signature=spec)
        self._reader_for(spec).instantiate(iter(empty))

    def read_from(self, iterator: Any) -> None:
        """Read from `iterator` from now on, also in a step that is repeated: fewer members divide the data."""
        self._replacement = iterator

    def train_by_itself(self) -> None:
        """Train the newest batch without the others: for what the step changes beside weights and optimizer."""
        with self._continuity.by_itself():
            assert self._reader is not None
            tf.function(self._step)(self._reader.batch)

    def _trained(self, reader: StepReader, iterator: Iterator[Any]) -> Any:
        try:
            return reader.train_next(iterator)
        except (RingError, tf.errors.OpError) as error:
            broken = error
        while is_ring_error(broken):
            if not self._heal(broken):
                return None
            try:
                if self._replacement is None:
                    return reader.train_again()
                iterator = self._replacement
                self._replacement = None
                reader = self._reader_of(iterator)
                return reader.train_next(iterator)
            except (RingError, tf.errors.OpError) as error:
                broken = error
        raise broken

    def _reader_of(self, iterator: Iterator[Any]) -> StepReader:
        if self._reader is None or iterator is not self._iterator:
            self._reader = self._reader_for(iterator.element_spec)  # type: ignore[attr-defined] # of TensorFlow
            self._iterator = iterator
        return self._reader

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
            with tf.control_dependencies(self._values.keep()), _early_metrics(model):
                return model.train_step(data)

        return model.distribute_strategy.run(model._autoconvert_optionals(train), args=(batch,))


@contextmanager
def _early_metrics(model: Any) -> Iterator[None]:
    """Have a step that is traced within the block update the metrics of `compile()` before its collective.

    Keras does it after the optimizer: then what members send beside their gradients would lack the step in metrics.
    """
    metrics = model._compile_metrics
    if metrics is None:
        yield
        return
    compute_loss = model._compute_loss
    update = metrics.update_state

    @as_written
    def compute(**arguments: Any) -> Any:
        loss = compute_loss(**arguments)
        update(arguments["y"], arguments["y_pred"], arguments["sample_weight"])
        return loss

    model._compute_loss = compute
    metrics.update_state = as_written(lambda *arguments, **weights: None)
    try:
        yield
    finally:
        del model._compute_loss
        del metrics.update_state
