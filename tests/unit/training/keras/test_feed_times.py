"""How long a fit waits for its batches, with a reader as Keras has one for PyTorch."""

from collections.abc import Iterator

import pytest

from sparktrain.training.collectives.step_notes import StepNotes
from sparktrain.training.frameworks.keras.callbacks import time_batches


class Reader:
    """Batches that take 7 ns each."""

    now_ns = 0

    def _get_iterator(self) -> Iterator[int]:
        for batch in range(3):
            self.now_ns += 7
            yield batch


def test_the_wait_for_each_batch_is_part_of_its_step() -> None:
    reader = Reader()
    notes = StepNotes(lambda: reader.now_ns)
    for number in (1, 2):
        time_batches(reader, notes)
        for step, batch in enumerate(reader._get_iterator()):
            reader.now_ns += 100
            notes.step(10 * number + batch)
            assert step == batch
    assert notes.steps()[:, 2].tolist() == [7] * 6
    assert reader.now_ns == pytest.approx(6 * 107)
