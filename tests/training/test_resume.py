"""A fit that is killed and resumes from a checkpoint trains on the same data in the same order."""

from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.keras.callbacks import keras_callbacks
from tests.training import rowed
from tests.training.gluing import BATCH, EXAMPLES, Memory, Outside, fitted, ids, member

OTHER_DATA = pytest.mark.all(
    case="the other kinds of data, resumed in the middle of an epoch", covered_by="half of the combinations"
)

KINDS = ("known", "unknown", "twice_shuffled", "shuffled_and_cached", "arrays", "generator", "rows")


OFTEN = {
    *(("known", 1), ("unknown", 4), ("twice_shuffled", 1)),
    *(("shuffled_and_cached", 4), ("arrays", 1), ("generator", 4)),
    ("rows", 4),
}
"""Cases of `make test`: each kind, each number of steps; `make test-all` has their product."""
MIDDLES = [pytest.param(*case, marks=() if case in OFTEN else OTHER_DATA) for case in product(KINDS, (1, 4))]


@pytest.mark.parametrize(("kind", "steps_per_execution"), MIDDLES)
def test_resumes_in_the_middle_of_an_epoch(kind: str, steps_per_execution: int) -> None:
    draw = np.random.default_rng([KINDS.index(kind), steps_per_execution])
    options = {"steps_per_execution": steps_per_execution}
    whole, wanted = fitted(kind, Memory(), every=None, epochs=3, options=options)
    memory = Memory()
    died: list[list[int]] = []
    for _ in range(2):  # killed twice, in the second epoch and in the third
        kill = int(draw.integers(28, 34)) // steps_per_execution
        model, _ = fitted(kind, memory, every=2, kill=kill, epochs=3, options=options)
        at, base = memory.saved[-1][0], memory.restored[-1].step if memory.restored else 0
        died += model.seen[: at.step - base]
    last, history = fitted(kind, memory, every=2, epochs=3, options=options)

    assert died + last.seen == whole.seen
    assert [sorted(chain.from_iterable(each)) for each in _epochs(whole.seen)] == [list(range(EXAMPLES))] * 3
    assert [(at.epoch, at.batch > 0) for at in memory.restored] == [(1, True), (2, True)]
    assert history == {name: pytest.approx(values) for name, values in wanted.items()}
    np.testing.assert_allclose(last.get_weights()[0], whole.get_weights()[0], rtol=1e-6)


def _epochs(seen: list[list[int]]) -> list[list[list[int]]]:
    steps = -(-EXAMPLES // 4)
    return [seen[start : start + steps] for start in range(0, len(seen), steps)]


@pytest.mark.parametrize(
    ("kind", "per_epoch"),
    [
        ("endless", 7),
        pytest.param("known", 23, marks=OTHER_DATA),
        pytest.param("known", 5, marks=OTHER_DATA),
        pytest.param("generator", 5, marks=OTHER_DATA),
        ("rows", 5),
        pytest.param("rows", 23, marks=OTHER_DATA),
    ],
)
def test_resumes_with_a_given_number_of_steps_per_epoch(kind: str, per_epoch: int) -> None:
    options: dict[str, Any] = {"epochs": 4, "steps_per_epoch": per_epoch}
    whole, _ = fitted(kind, Memory(), every=None, **options)
    memory = Memory()
    first, _ = fitted(kind, memory, every=3, kill=per_epoch + 4, **options)
    last, _ = fitted(kind, memory, every=3, **options)
    at = memory.restored[0]

    assert (at.epoch, at.batch) == (1, at.step - per_epoch)
    assert first.seen[: at.step] + last.seen == whole.seen
    assert len(whole.seen) == 4 * per_epoch


@pytest.mark.parametrize(
    ("kind", "steps_per_execution"),
    [("known", 1), ("unknown", 4), *(pytest.param(*case, marks=OTHER_DATA) for case in (("arrays", 1), ("rows", 4)))],
)
def test_callbacks_get_the_batch_numbers_of_a_fit_without_the_loss(kind: str, steps_per_execution: int) -> None:
    memory = Memory()
    seen: list[list[tuple[int, int]]] = []
    for kill in (0, 30 // steps_per_execution, 0):
        numbers: list[tuple[int, int]] = []
        begun: list[int] = []
        note = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs, begun=begun: begun.append(batch),
            on_train_batch_end=lambda batch, logs, numbers=numbers, begun=begun: numbers.append((begun[-1], batch)),
        )
        state = memory if seen else Memory()
        options = {"steps_per_execution": steps_per_execution}
        fitted(kind, state, every=2, kill=kill, epochs=3, options=options, watch=[note])
        seen.append(numbers)
    whole, _, resumed = seen
    assert memory.restored[0].batch
    assert resumed == whole[-len(resumed) :]


def test_resumes_at_the_end_of_an_epoch_and_reports_each_epoch_once() -> None:
    memory = Memory()
    first, _ = fitted("known", memory, every="epoch", kill=50, epochs=3)
    last, history = fitted("known", memory, every="epoch", epochs=3)
    whole, _ = fitted("known", Memory(), every="epoch", epochs=3)

    assert first.seen[:46] + last.seen == whole.seen
    assert len(history["loss"]) == 3
    assert [(at.step, at.epoch, at.batch) for at, _, _ in memory.saved] == [(23, 1, 0), (46, 2, 0), (69, 3, 0)]


def test_nothing_is_left_to_do_after_the_last_epoch() -> None:
    memory = Memory()
    ends: list[dict[str, float]] = []
    note = keras.callbacks.LambdaCallback(on_train_end=ends.append)
    _, whole = fitted("known", memory, every="epoch", epochs=2, watch=[note])
    again, history = fitted("known", memory, every="epoch", epochs=2, watch=[note])

    assert (again.seen, history) == ([], whole)
    assert ends[0] == ends[1] != {}


def test_a_checkpoint_that_is_due_with_an_epoch_resumes_in_the_next() -> None:
    memory = Memory()
    fitted("unknown", memory, every=23, epochs=2)

    assert [(at.step, at.epoch, at.batch) for at, _, _ in memory.saved] == [(23, 1, 0), (46, 2, 0)]
    assert all(earlier.step < later.step for (earlier, _, _), (later, _, _) in pairwise(memory.saved))


class OwnBoard(keras.callbacks.TensorBoard):
    """A callback of a user who extends one of Keras."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        self.own = batch


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras with NumPy 2.4
def test_a_callback_that_extends_one_of_keras_continues_its_counters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Memory()
    board = OwnBoard(str(tmp_path), update_freq=1)
    callbacks = [*keras_callbacks(Outside().ties(snapshots=memory), checkpoint_every=3), board]
    member().fit(ids[:8], ids[:8], 2, validation_data=(ids[:4], ids[:4]), callbacks=callbacks, verbose=0, shuffle=False)
    [(place, _, _)] = memory.saved
    assert place.content["callbacks"]["OwnBoard#1"] == {"_global_train_batch": 3, "own": 2}
    assert "is not saved" not in capsys.readouterr().err


def test_callbacks_have_the_steps_of_an_epoch_of_a_ring_of_another_size() -> None:
    outside = Outside()
    steps = []
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(note.params["steps"]))
    callbacks = [*keras_callbacks(outside.ties(), checkpoint_every=None), note]
    resize = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: outside.position.divide(6, 3, 2) if batch == 2 else None
    )
    member().fit(ids[:8], ids[:8], 2, callbacks=[*callbacks, resize], verbose=0, shuffle=False)
    assert steps == [4, 4, 6, 6]


ROWS = 96
"""Batches of 4 fill each step of gangs of one, two and three."""


def rows_of_a_gang(size: int, memory: Memory, kill: int = 0) -> list[list[int]]:
    """The life of a gang, one member after the other: the rows of each step of all its members that counts.

    Those after the newest checkpoint of a killed gang do not. Each member restores what the chief has saved.
    """
    ref, cache = rowed.numbers(ROWS)
    before = list(memory.saved)
    seen = []
    for rank in range(size):

        def share(position: Position, rank: int = rank) -> Any:
            data = rowed.opened(ref, rank, size, position, cache)
            return data.to_tf(batch_size=BATCH, feature_columns="x", label_columns="x", shuffle=True)

        own = memory if rank == 0 else Memory()
        own.saved = own.saved or list(before)
        model, _ = fitted(share, own, every=2, kill=kill, epochs=3)
        seen.append(model.seen)
    base = memory.restored[-1].step if before else 0
    steps = [list(chain.from_iterable(step)) for step in zip(*seen, strict=True)]
    return steps[: memory.saved[-1][0].step - base] if kill else steps


@pytest.mark.parametrize(("sizes", "kills"), [((3, 2, 1), (11, 10)), ((1, 2), (39,))], ids=["shrinks twice", "grows"])
def test_rows_come_once_in_an_epoch_in_a_gang_of_another_size(sizes: tuple[int, ...], kills: tuple[int, ...]) -> None:
    memory = Memory()
    lives = [rows_of_a_gang(size, memory, kill) for size, kill in zip(sizes, (*kills, 0), strict=True)]
    rows = list(chain.from_iterable(chain.from_iterable(lives)))
    epochs = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]

    assert [sorted(each) for each in epochs] == [list(range(ROWS))] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    assert [len(life[0]) for life in lives] == [size * BATCH for size in sizes]
    taken = [sum(len(step) for step in life) % ROWS for life in lives[:-1]]
    assert all(taken), "each gang ends within an epoch"
