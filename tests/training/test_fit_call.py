"""A restarted function that leaves a finished fit out, or trains longer: which call of fit resumes which training."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from sparktrain.errors import UserError
from sparktrain.training import notices
from sparktrain.training.data.fit_call import call_place, check_call
from sparktrain.training.frameworks.keras.callbacks import keras_callbacks
from tests.training.gluing import Kill, KilledError, Memory, Outside

STEPS = 4
FIRST = {"epochs": 2, "rate": 0.1}


class Process:
    """A member from its start to its end: its calls of `fit`, and the steps that each has trained."""

    def __init__(self, memory: Memory, settings: int = 0) -> None:
        self._outside = Outside()
        self._outside.position.stages.settings = settings
        self._memory = memory
        self.trained: list[int] = []
        self.ends: list[Any] = []

    def phase(
        self,
        *,
        epochs: int,
        rate: float = 0.1,
        loss: Any = "mse",
        optimizer: Any = None,
        columns: int = 1,
        rows: int = 2,
        kill: int = 0,
        callback: Any = None,
    ) -> Any:
        layers = [
            keras.Input((None,)),
            keras.layers.Lambda(lambda x: keras.ops.mean(x, -1, True)),
            keras.layers.Dense(1),
        ]
        model = keras.Sequential(layers)
        model.compile((optimizer or keras.optimizers.SGD)(rate), loss, run_eagerly=True)
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: self._count())
        callbacks = [*self.callbacks(kill), count]
        callbacks += [callback] if callback else []
        x = np.ones((2 * STEPS, columns), "float32")
        self.trained.append(0)
        return model.fit(x, x[:, :1], rows, epochs, callbacks=callbacks, verbose=0, shuffle=False)

    def callbacks(self, kill: int = 0) -> list[Any]:
        end = keras.callbacks.LambdaCallback(on_train_end=self.ends.append)
        return [*keras_callbacks(self._outside.ties(snapshots=self._memory)), end, *([Kill(kill)] if kill else [])]

    def _count(self) -> None:
        self.trained[-1] += 1


class Halve(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Halves the learning rate in each of the first two epochs."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch < 2:
            self.model.optimizer.learning_rate.assign(self.model.optimizer.learning_rate / 2)


def killed_in_second(second: dict[str, Any], kill: int) -> Memory:
    """The checkpoints of a process that has ended its first fit, and was killed in its second one."""
    memory = Memory()
    process = Process(memory)
    process.phase(**FIRST)
    with pytest.raises(KilledError):
        process.phase(**second, kill=kill)
    return memory


@pytest.mark.parametrize("kill", [1, STEPS + 1], ids=["before its first checkpoint", "after it"])
@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"epochs": 3, "rate": 0.01}, "epochs 3 instead of 2, learning rate 0.01 instead of 0.1"),
        ({"epochs": 2, "rate": 0.01}, "learning rate 0.01 instead of 0.1"),
        ({"epochs": 2, "loss": "mae"}, "loss mae instead of mse"),
        ({"epochs": 2, "optimizer": keras.optimizers.RMSprop}, "optimizer RMSprop instead of SGD"),
        ({"epochs": 2, "columns": 3}, r"data float32\[3\], float32\[1\] instead of float32\[1\], float32\[1\]"),
    ],
)
def test_the_second_fit_does_not_resume_the_first(second: dict[str, Any], words: str, kill: int) -> None:
    memory = killed_in_second(second, kill)
    process = Process(memory)
    with pytest.raises(UserError, match=words):
        process.phase(**second)
    assert process.trained == [0]


def test_a_fit_of_another_line_does_not_resume_an_equal_one() -> None:
    def train(process: Process, fits: Callable[[], bool], kill: int = 0) -> None:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        x = np.ones((4, 1), "float32")
        if fits():
            model.fit(x, x, 2, 1, callbacks=process.callbacks(), verbose=0, shuffle=False)
        model.fit(x, x, 2, 1, callbacks=process.callbacks(kill), verbose=0, shuffle=False)

    memory = Memory()
    first = Process(memory)
    with pytest.raises(KilledError):
        train(first, lambda: True, kill=1)
    with pytest.raises(UserError, match=r"train.. calls it at another place"):
        train(Process(memory), lambda: False)
    again = Process(memory)
    train(again, lambda: True)
    assert first.ends == again.ends[:1] != [{}], "a finished fit ends with the logs of its last epoch"


@pytest.mark.parametrize(
    ("change", "settings", "steps", "words"),
    [
        ({"epochs": 3}, 0, STEPS, "epochs 3 instead of 2: it resumes"),
        ({"rate": 0.01}, 1, 0, "learning rate 0.01 instead of 0.1: it had finished, and is not repeated"),
        ({"epochs": 3, "rate": 0.01}, 1, STEPS, "0.1: it resumes, and the learning rate of the checkpoint changes"),
        ({"loss": "mae"}, 1, 0, "loss mae instead of mse"),
        ({"rows": 4}, 0, 0, "steps of an epoch 2 instead of 4: it had finished, and is not repeated"),
    ],
)
def test_a_fit_may_train_longer_and_says_so(change: dict[str, Any], settings: int, steps: int, words: str) -> None:
    """Both at once, and another loss, where the parameters of the trial have changed too, as in a refit."""
    memory = Memory()
    Process(memory).phase(**FIRST)
    process = Process(memory, settings)
    with notices.kept_apart():
        trained = process.phase(**FIRST | change).model
        assert words in " ".join(notices.issued_notices())
    assert process.trained == [steps]
    assert not steps or float(trained.optimizer.learning_rate) == np.float32(change.get("rate", FIRST["rate"]))


def test_a_rate_that_a_callback_has_changed_changes_in_proportion() -> None:
    memory = Memory()
    Process(memory).phase(**FIRST, callback=Halve())
    resumed = Process(memory, settings=1).phase(epochs=3, rate=0.2, callback=Halve())
    assert float(resumed.model.optimizer.learning_rate) == pytest.approx(0.2 / 4)


def test_a_checkpoint_without_these_facts_resumes() -> None:
    """As versions before wrote them."""
    check_call({"optimizer": "SGD", "epochs": 3, "settings": 1, "place": [["train", 1, 2]]}, {}, 1, finished=True)


def test_a_helper_that_calls_fit_is_told_by_who_calls_it() -> None:
    """Between the training function and `fit`; outside of both nothing is compared."""
    fit: dict[str, Any] = {"__name__": "keras.trainer"}
    member: dict[str, Any] = {"__name__": "sparktrain.member"}
    exec("def fit(place): return place()", fit)
    exec("def run(function): return function()", member)

    def phase() -> Any:
        return fit["fit"](call_place)

    def train() -> Any:
        return phase(), phase()

    first, second = member["run"](train)
    assert [name.rpartition(".")[2] for name, _, _ in first] == ["phase", "train"]
    assert (first[0] == second[0], first[1][:2] == second[1][:2], first[1] == second[1]) == (True, True, False)
    with pytest.raises(UserError, match=r"train.. calls it at another place"):
        check_call({"place": second}, {"place": first}, 1, finished=False)
    (alone,) = phase()
    assert alone == first[0]
