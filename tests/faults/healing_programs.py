"""A training with members that are killed at chosen places, and that notes which processes and traces it had.

It runs on any backend of Keras.
"""

import importlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import sparktrain as st
from sparktrain.errors import RingError
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.elastic import step_boundary
from sparktrain.training.frameworks.keras.healing.surviving_fit import SurvivingFit

ROWS = 192
BATCH = 8
EPOCHS = 2
LAGGING = {
    "tensorflow": "tests.faults.lagging_graphs",
    "torch": "tests.torch.lagging",
    "jax": "tests.faults.jax_steps",
}
"""What has the sums of a step pass through a function, by backend."""


class Counted(keras.layers.Dense):  # type: ignore[misc] # Keras has no types
    """Counts how often the training step is traced; on PyTorch, which traces none, how often it is run."""

    traces = 0

    def call(self, inputs: Any, training: Any = None) -> Any:
        """See base class."""
        if training:
            Counted.traces += 1
        return super().call(inputs)


class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Kills this process at the places of its rank, each once in a run."""

    def __init__(
        self, notes: Path, rank: int, places: list[tuple[int, str, int]], step_s: float = 0.0, cyclic: bool = False
    ) -> None:
        """`places` have a rank, an event of Keras, "later", "spoil" or "round", and the steps before it.

        A step takes `step_s` more. With `cyclic` the learning rate follows the number of the batch.
        """
        super().__init__()
        self._cyclic = cyclic
        self._step_s = step_s
        self._notes = notes
        self._rank = rank
        self._places = places

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        if self._step_s:
            time.sleep(self._step_s)  # the work of a step
            (self._notes / f"steps-{self._rank}").write_text(str(int(self.model.optimizer.iterations)))
        if self._cyclic:
            self.model.optimizer.learning_rate = 0.01 / (1 + batch % 5)
        self.at("batch")
        self.at("spoil")
        self.at("later")
        self.at("stop")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self.at("start")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        self.at("epoch")

    def at(self, event: str) -> None:
        """The training has come to `event`."""
        steps = int(self.model.optimizer.iterations)
        for number, place in enumerate(self._places):
            mark = self._notes / f"killed-{number}"
            # Which steps have a round depends on how long its copies take.
            is_here = steps >= place[2] if event == "round" else steps == place[2]
            if [self._rank, event] == [*place[:2]] and is_here and not mark.exists():
                mark.touch()
                if event == "spoil":
                    bias = self.model.trainable_variables[1]
                    bias.assign(keras.ops.convert_to_numpy(bias) + np.float32(1e-6))
                elif event == "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif event == "later":
                    # In the next step, wherever that is then.
                    threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGKILL)).start()
                else:
                    os.kill(os.getpid(), signal.SIGKILL)


class Lines(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Writes a line for each step of its rank: the step, the number of the batch, and whether it has a loss."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.lines = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See base class."""
        self.lines += 1
        with self._path.open("a") as file:
            print(json.dumps([int(self.model.optimizer.iterations), self.lines, batch, "loss" in logs]), file=file)


def kill_in_healing(notes: Path, rank: int, places: list[Any]) -> None:
    """Kill this process once the next one of another rank has entered its function: the ring heals then.

    Such a place is (this rank, "healing", the other rank), and of the next process itself (its rank, "entering", 0).
    With "held" that one waits in its function until there is a file "go". With "joined" in place of "healing" the next
    process has joined the ring, and trains its first step there once this one is gone.
    """
    for number, (victim, event, other) in enumerate(places):
        mark = notes / f"killed-{number}"
        if victim != rank or mark.exists():
            continue
        if event == "entering" and len(list(notes.glob(f"pid-{rank}-*"))) == 2:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        elif event == "held" and len(list(notes.glob(f"pid-{rank}-*"))) == 2:
            mark.touch()
            wait_for(notes / "go")
        elif event in ("healing", "joined"):
            threading.Thread(target=_kill_after, args=(notes, event, other, mark), daemon=True).start()


def _kill_after(notes: Path, event: str, rank: int, mark: Path) -> None:
    while not (notes / f"joined-{rank}").exists() if event == "joined" else len(list(notes.glob(f"pid-{rank}-*"))) < 2:
        time.sleep(0.005)
    mark.write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def wait_when_joined(notes: Path, rank: int, places: list[Any]) -> None:
    """Have a next process of `rank` wait before its first step until the one is gone that "joined" names."""
    marks = [notes / f"killed-{number}" for number, place in enumerate(places) if place[1:] == ["joined", rank]]
    healed = RingHealing.healed

    def healed_late(self: RingHealing, step: int) -> None:
        healed(self, step)
        (notes / f"joined-{rank}").touch()
        wait_for(marks[0])
        while Path(f"/proc/{marks[0].read_text()}").exists():
            time.sleep(0.002)

    if marks and not marks[0].exists():
        RingHealing.healed = healed_late  # type: ignore[method-assign]


def kill_in_round(kill: Kill) -> None:
    """Have the process come to "round" when the chief's part of a memory checkpoint is there, and the rest is not."""
    gathered = step_boundary.gathered

    def gathered_late(*arguments: Any) -> Any:
        kill.at("round")
        return gathered(*arguments)

    step_boundary.gathered = gathered_late


class Lag:
    """Has a gang of three break after a step that one survivor has applied, while the other does not get its sum.

    Rank 0 applies the step; then rank 2 kills itself; then the sum of rank 1 fails as a collective of a broken ring.
    """

    def __init__(self, notes: Path, rank: int, step: int) -> None:
        self._notes = notes
        self._rank = rank
        self._step = step
        self._steps = 0

    def install(self) -> None:
        """Pass what the ring sums through this object, in each step."""
        importlib.import_module(LAGGING[keras.backend.backend()]).pass_sums(self.end)
        end_step = SurvivingFit.end_step

        def noted(fit: SurvivingFit) -> None:
            end_step(fit)
            self.applied()

        SurvivingFit.end_step = noted  # type: ignore[method-assign]

    def applied(self) -> None:
        """This member has applied a step. It meets the others next: in a callback, or in the next step."""
        if self._steps == self._step + 1:
            (self._notes / f"applied-{self._rank}").touch()

    def end(self) -> None:
        """The sum has come to this member. Raises RingError where it has not, for the test."""
        self._steps += 1
        broken = self._notes / f"broken-{self._rank}"
        if self._steps == self._step + 1 and self._rank and not broken.exists():
            broken.touch()
            wait_for(self._notes / "applied-0")
            if self._rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RingError("the collective has ended on others, and has failed here")


def wait_for(path: Path, timeout_s: float = 60.0) -> None:
    """Block until there is a file at `path`."""
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {path} within {timeout_s:g} s")
        time.sleep(0.002)


def examples() -> tuple[Any, Any]:
    """The rows of the training, and their classes."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(ROWS, 8)).astype("float32"), rng.integers(0, 3, ROWS)


def compiled(ctx: Any) -> Any:
    """A model that has moving averages and draws random numbers; its traces are counted."""
    layers = [Counted(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((8,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=ctx.distribute(keras.optimizers.SGD(0.01, momentum=0.9)), loss=loss, metrics=["accuracy"])
    return model


def note_end(notes: Path, ctx: Any, model: Any, history: Any, **facts: Any) -> None:
    """Write what `tests.support.healed_members` reads: the variables of this member, its traces, and more `facts`."""
    variables = [*model.variables, *model.optimizer.variables]
    values = {variable.path: keras.ops.convert_to_numpy(variable) for variable in variables}
    np.savez(notes / f"member-{ctx.rank}.npz", **values)
    facts |= {"pid": os.getpid(), "traces": Counted.traces, "history": history.history}
    (notes / f"facts-{ctx.rank}.json").write_text(json.dumps(facts))


def train(
    folder: str,
    kills: list[Any],
    sharded: bool,
    ctx: Any,
    lag: int | None = None,
    step_s: float = 0.0,
    every: str | None = "auto",
    cyclic: bool = False,
) -> None:
    """Train on plain arrays or, in another order in each epoch, by `ctx.shard`; note how this member has ended."""
    keras.utils.set_random_seed(7)
    notes = Path(folder)
    if lag is not None:
        Lag(notes, ctx.rank, lag).install()
    (notes / f"pid-{ctx.rank}-{os.getpid()}").touch()
    kill_in_healing(notes, ctx.rank, kills)
    wait_when_joined(notes, ctx.rank, kills)
    x, y = examples()
    model = compiled(ctx)
    stopper = keras.callbacks.EarlyStopping(monitor="loss", patience=EPOCHS)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint=every), stopper]
    if kills or lag is None:
        kill = Kill(notes, ctx.rank, kills, step_s, cyclic)
        callbacks += [kill, Lines(notes / f"lines-{ctx.rank}")]
        kill_in_round(kill)
    options = {"epochs": EPOCHS, "verbose": 0, "callbacks": callbacks}
    if sharded:
        history = model.fit(ctx.shard((x, y), batch_size=BATCH, shuffle=True), **options)
    else:
        mine = slice(ctx.rank, None, ctx.size)
        history = model.fit(x[mine], y[mine], batch_size=BATCH, shuffle=False, **options)
    note_end(notes, ctx, model, history, wait=stopper.wait)


def driven(folder: Path) -> list[list[Any]]:
    """Run a gang that heals, in which a member waits in its function, and one without a loss; the losses of both."""
    return [[cause for cause, _ in losses] for losses in compared(folder, [[1, "batch", 5], [1, "held", 0]])]


def compared(folder: Path, kills: list[Any]) -> list[list[tuple[str, bool]]]:
    """Run a gang that loses members, and one that does not; the losses of both, and whether the ring healed."""
    losses = []
    for name, places in (("broken", kills), ("whole", [])):
        notes = folder / name
        notes.mkdir(exist_ok=True)
        params = {"folder": str(notes), "kills": places, "sharded": False}
        result = st.run(
            train, params, workers=2, backend="horovod", spark=st.local(slots=2), dir=str(folder / "runs"), name=name,
            seed=1, progress=False,
        )  # fmt: skip
        losses.append([(restart.cause, restart.healed) for restart in result.restarts])
    return losses
