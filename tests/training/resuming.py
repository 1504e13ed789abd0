"""Training functions that save, resume, and compare; each is called in a fresh process that has imported Keras."""

import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.errors import UserError
from sparktrain.protocol.pipe_messages import Snapshot, SnapshotAnswered
from sparktrain.training.checkpoint import tensor_files, training_state
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.export import export
from sparktrain.training.frameworks.keras import model_state

STEPS, SAVED = 12, 5


def small_model(units: int = 16, shift: bool = False, dtype: str = "float32", extra: int = 0, norm: bool = True) -> Any:
    """A model with state that is easily forgotten: moving averages, dropout, slots, a loss scale, a schedule."""
    import keras

    keras.config.set_dtype_policy(dtype)
    if shift:  # another model before it: Keras counts its layers on
        keras.Sequential([keras.Input((8,)), keras.layers.Dense(3), keras.layers.Dropout(0.1)])
    layers = keras.layers
    parts = [layers.Dense(units), *([layers.BatchNormalization()] if norm else []), layers.Dropout(0.3)]
    parts += [layers.Dense(1, name=f"extra-{number}") for number in range(extra)]
    model = keras.Sequential([keras.Input((8,)), *parts, layers.Dense(1)])
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.9)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(schedule), dynamic_growth_steps=4)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def train_step(model: Any) -> float:
    """One batch, drawn from each of the process's global generators."""
    import keras

    x = np.random.normal(size=(16, 8)).astype("float32") + keras.random.normal((16, 8)).numpy()
    y = x.sum(axis=1, keepdims=True) * random.uniform(0.9, 1.1)
    model.reset_metrics()
    return float(model.train_on_batch(x, y)[0])


def save(model: Any, folder: Path, step: int, **values: Any) -> None:
    state = training_state.capture(model, step, **values)
    tensor_files.save(folder, state.tensors, state.document)


def everything(model: Any) -> list[np.ndarray]:
    """All that must be the same, bit by bit."""
    found = [model_state.value(each) for each in model_state.named(model).values()]
    return [*found, model_state.global_seed(), np.random.random(4), np.array(random.random())]


def compare(model: Any, end: Path) -> dict[str, float]:
    kept, found = np.load(end), everything(model)
    wrong = [index for index, each in enumerate(found) if each.tobytes() != kept[f"arr_{index}"].tobytes()]
    assert not wrong, f"{wrong} of {[*model_state.named(model)]}"
    assert len(found) == len(kept.files)
    return {"compared": len(found)}


def train_straight(folder: str) -> dict[str, float]:
    model = small_model()
    losses: list[float] = []
    for step in range(STEPS):
        if step == SAVED:
            save(model, Path(folder) / "state", step, epoch=1, batch=2, extra={"losses": losses})
        losses.append(train_step(model))
    assert float(model.optimizer.dynamic_scale.value) > 2**15, "the loss scale has never changed"
    np.savez(Path(folder) / "end.npz", *everything(model))
    return {f"loss-{step}": loss for step, loss in enumerate(losses)}


def train_resumed(folder: str, shift: bool) -> dict[str, float]:
    model = small_model(shift=shift)
    random.seed(0)  # whatever the function has drawn before it resumes
    np.random.seed(0)
    restored = training_state.restore(model, Path(folder) / "state", rank=0)
    assert (restored.step, restored.epoch, restored.batch) == (SAVED, 1, 2)
    losses = [*restored["losses"], *(train_step(model) for _ in range(SAVED, STEPS))]
    compare(model, Path(folder) / "end.npz")
    return {f"loss-{step}": loss for step, loss in enumerate(losses)}


def resume_as_another_rank(folder: str) -> None:
    import keras

    keras.utils.set_random_seed(99)
    model = small_model()
    keras.random.normal(())
    own = {
        name: model_state.value(each) for name, each in model_state.named(model).items() if name.startswith("seeds/")
    }
    own_global, own_python = model_state.global_seed(), random.getstate()
    assert own
    training_state.restore(model, Path(folder) / "state", rank=1)
    with tensor_files.TensorFiles(Path(folder) / "state") as files:
        for name, each in model_state.named(model).items():
            stored = files.read(name) if name in files else None
            if name in own:
                assert stored is not None
                assert model_state.value(each).tolist() == [own[name][0], stored[1]] != stored.tolist()
            elif stored is not None and not name.startswith(model_state.METRICS):
                assert model_state.value(each).tobytes() == stored.tobytes(), name
        assert model_state.global_seed().tolist() == [own_global[0], files.read(model_state.GLOBAL_SEED)[1]]
    assert random.getstate() == own_python


def resume_own_optimizers(folder: str) -> dict[str, float]:
    """A model's optimizers beside that of compile() resume too; one that its first step builds starts from 0."""
    import keras

    def model_of(*, built: bool) -> Any:
        keras.backend.clear_session()
        model = small_model()
        model.second = keras.optimizers.Adam(0.1)
        if built:
            model.second.build(model.trainable_variables[:1])
        return model

    model = model_of(built=True)
    train_step(model)
    model.second.apply([model_state.value(model.trainable_variables[0]) + 1], model.trainable_variables[:1])
    save(model, Path(folder) / "own", 1)
    found = model_of(built=True), model_of(built=False)
    for each in found:
        training_state.restore(each, Path(folder) / "own", rank=0)
        assert each.get_weights()[0].tolist() == model.get_weights()[0].tolist()
    ends = [[model_state.value(each).tolist() for each in one.second.variables] for one in (model, *found)]
    assert ends[0] == ends[1]
    return {"steps": float(ends[1][0]), "steps of one built late": float(ends[2][0])}


def fit_in_pieces(folder: str) -> dict[str, float]:
    """`fit` that resumes in the midst of an epoch has the logs, too, of one that was never interrupted."""
    import keras
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=(6 * 16, 8)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(16)
    checkpoints = CheckpointSaver(Agent(), Path(folder) / "pieces", "", 0, SystemClock())

    def keep(batch: int, logs: Any) -> None:
        step = int(model.optimizer.iterations.value)
        if step == 6 + 3:
            checkpoints.save(step, model, epoch=1, batch=3)

    model = small_model()
    keras.random.normal(())
    straight = model.fit(data, epochs=2, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=keep)])
    checkpoints.wait(60.0)
    np.savez(Path(folder) / "pieces.npz", *everything(model))

    model = small_model(shift=True)
    restore_dir = str(Path(folder) / "pieces" / "snapshot-00000009")
    later = CheckpointSaver(Agent(), Path(folder) / "unused", restore_dir, 0, SystemClock())
    assert not later.restore_metrics(model), "those of compile() are not built yet"
    model.evaluate(data.take(1), verbose=0)
    later.restore(model)
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: later.restore_metrics(model))
    rest = model.fit(data.skip(3), initial_epoch=1, epochs=2, verbose=0, callbacks=[begin])
    logs = {name: each[-1] for name, each in straight.history.items()}
    assert logs == {name: each[-1] for name, each in rest.history.items()}
    later.save(9 + 3, model)
    later.finish()
    return compare(model, Path(folder) / "pieces.npz")


class Agent:
    """Keeps every snapshot, as it is."""

    def __init__(self) -> None:
        self._steps: list[int] = []

    def take_asked(self, *, in_store: bool = False) -> bool:
        return False

    def send(self, message: Snapshot) -> None:
        self._steps.append(message.step)

    def snapshot_answer(self, timeout_s: float) -> SnapshotAnswered | None:
        return SnapshotAnswered(self._steps.pop())


def refuse_other_models(folder: str) -> None:
    shape = "of another shape or type: model/sequential/dense/kernel float32 (8, 20), in the checkpoint float32 (8, 16)"
    for model, words in (
        (small_model(units=20), shape),
        (small_model(extra=1), "the checkpoint lacks model/sequential_1/extra-0/kernel float32 (16, 1)"),
        (small_model(norm=False), "the model lacks model/sequential/batch_normalization/gamma float32 (16,)"),
    ):
        before = everything_but_generators(model)
        with pytest.raises(UserError) as caught:
            training_state.restore(model, Path(folder) / "state", rank=0)
        assert str(caught.value).startswith(f"the checkpoint of step {SAVED} is of another model")
        assert words in str(caught.value)
        assert str(caught.value).count("float32") <= 5 + 5 + 2 * 5
        assert before == everything_but_generators(model), "a model that was refused has changed"


def everything_but_generators(model: Any) -> list[bytes]:
    return [model_state.value(each).tobytes() for each in model_state.named(model).values()]


def refuse_an_unbuilt_model() -> None:
    import keras

    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(UserError, match="has no variables yet: build it first"):
        training_state.capture(model, 0)


def resume_in_bfloat16(folder: str) -> None:
    model = small_model(dtype="bfloat16")
    unneeded = training_state.capture(model, 0).tensors
    train_step(model)
    save(model, Path(folder) / "bfloat16", 1, spare=unneeded)
    before = everything_but_generators(model)
    train_step(model)
    assert before != everything_but_generators(model)
    training_state.restore(model, Path(folder) / "bfloat16", rank=0)
    assert before == everything_but_generators(model)
    assert {each.dtype for each in model.weights} == {"bfloat16"}


def export_once(folder: str) -> None:
    import keras

    model, exported = small_model(), Path(folder) / "exported"
    export(model, exported, rank=1)
    assert not exported.exists()
    for _ in range(2):
        export(model, exported, rank=0)
    assert [path.name for path in exported.iterdir()] == ["model.keras"]
    x = np.ones((2, 8), "float32")
    assert np.array_equal(keras.saving.load_model(exported / "model.keras")(x), model(x))


def capture_into_spare_memory() -> dict[str, float]:
    """What a copy of 100 MB of variables costs beside the copying: new memory, files, arrays that were not reused."""
    import keras

    layers = [keras.layers.Dense(2040, use_bias=False) for _ in range(2)]
    model = keras.Sequential([keras.Input((2040,)), *layers])
    model.compile(keras.optimizers.Adam(), "mse")
    spare = training_state.capture(model, 0).tensors
    opened: list[object] = []
    capturing = False

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if capturing and event in ("open", "os.listdir", "os.mkdir", "socket.connect"):
            opened.append(arguments)

    sys.addaudithook(watch)  # for the life of this process, as all audit hooks are
    tracemalloc.start()
    capturing = True
    tensors = training_state.capture(model, 1, spare=spare).tensors
    capturing = False
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "bytes": sum(tensor.nbytes for tensor in tensors.values()),
        "peak_bytes": peak_bytes,
        "opened": len(opened),
        "new arrays": sum(tensor is not spare.get(name) for name, tensor in tensors.items() if tensor.nbytes > 1000),
    }
