"""Functions that train Keras on JAX in a gang, and in one process.

They import Keras themselves: a process of tests that imports this module may have it on TensorFlow.
"""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np

import sparktrain as st

ROWS = 64
BATCH = 16
EPOCHS = 3


def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(2).normal(size=(ROWS, 4)).astype("float32")
    return x, np.sin(x.sum(axis=1, keepdims=True))


def network() -> Any:
    import keras

    start = keras.initializers.GlorotUniform(seed=1)
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, "tanh", kernel_initializer=start, kernel_regularizer="l2"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1, kernel_initializer=start),
        ]
    )


def share(array: Any, ctx: Any) -> Any:
    """The rows of this member of each batch of all."""
    return array.reshape(-1, ctx.size, BATCH // ctx.size, *array.shape[1:])[:, ctx.rank].reshape(-1, *array.shape[1:])


def train(folder: str, kill_at: int, ctx: Any, spoil_at: int = 0) -> dict[str, float]:
    """Fit by the callbacks of `ctx`; rank 1 of the first generation ends after `kill_at` steps.

    After `spoil_at` steps it has other weights."""
    import keras

    model = network()
    model.compile(ctx.distribute(keras.optimizers.Adam(0.01)), "mse", metrics=["mae"])
    x, y = rows()

    class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            if ctx.rank == 1 and ctx.generation == 1 and self.steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if ctx.rank == 1 and self.steps == spoil_at:
                self.model.layers[0].bias.assign_add(np.full(8, 1e-6, "float32"))

    history = model.fit(
        share(x, ctx), share(y, ctx), batch_size=BATCH // ctx.size, epochs=EPOCHS, shuffle=False, verbose=0,
        validation_data=(x, y), validation_batch_size=ROWS,
        callbacks=[*ctx.keras_callbacks(), Kill()],
    )  # fmt: skip
    np.savez(Path(folder, f"{ctx.size}-rank-{ctx.rank}.npz"), *model.get_weights())
    # Each member evaluates by itself.
    loss = model.evaluate(x, y, batch_size=ROWS, verbose=0)[0] if ctx.rank == 0 else 0.0
    return {
        "loss": history.history["loss"][-1],
        "mae": history.history["mae"][-1],
        "val_mae": history.history["val_mae"][-1],
        "evaluated": loss,
        "generation": ctx.generation,
    }


def distributed(kind: str) -> dict[str, float]:
    """A program for `keras.distribution` on several hosts: it knows nothing of sparktrain but its result."""
    import jax
    import keras

    keras.distribution.initialize()
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(distribution(kind))
    model = network()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x, y = rows()
    if kind == "data":  # each process brings its rows, and all of them where the model is split
        size = jax.process_count()
        mine = (slice(None), jax.process_index())
        x, y = (
            array.reshape(-1, size, BATCH // size, array.shape[-1])[mine].reshape(-1, array.shape[-1])
            for array in (x, y)
        )
    batch = BATCH // (jax.process_count() if kind == "data" else 1)
    history = model.fit(x, y, batch_size=batch, epochs=EPOCHS, shuffle=False, verbose=0)
    kernel = model.layers[0].kernel.value
    return {
        "devices": len(devices),
        "loss": history.history["loss"][-1],
        "mae": history.history["mae"][-1],
        "part": kernel.addressable_shards[0].data.size / kernel.size,
    }


def distribution(kind: str) -> Any:
    """Data or model parallelism over all devices."""
    import keras

    if kind == "data":
        return keras.distribution.DataParallel(auto_shard_dataset=False)
    count = keras.distribution.get_device_count()
    layout = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, count), ("batch", "model")))
    layout[".*/dense/kernel"] = (None, "model")
    layout[".*/dense/bias"] = ("model",)
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False)


def misfit(how: str) -> float:
    """A mesh of other devices than those of the gang."""
    import keras

    if how == "shape":
        keras.distribution.DeviceMesh((1, 4), ("batch", "model"))
    one = keras.distribution.DeviceMesh((1,), ("batch",), keras.distribution.list_devices()[:1])
    keras.distribution.DataParallel(device_mesh=one)
    return 1.0


def compiled_split() -> Any:
    """A model that is split over the members."""
    import keras

    keras.distribution.set_distribution(distribution("model"))
    model = network()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def watch_saves(size: int) -> list[float]:
    """Fail where a member gathers a variable while it saves; returns the shares of split tensors that are written."""
    from sparktrain.training.checkpoint import tensor_files
    from sparktrain.training.frameworks.jax import split_arrays
    from sparktrain.training.frameworks.keras.checkpoint_callbacks import FitCheckpoints

    shares: list[float] = []
    saving: list[int] = []
    save, write, gather = FitCheckpoints.save, tensor_files.save_part, split_arrays.multihost_utils.process_allgather

    def watched_save(*args: Any) -> None:
        saving.append(1)
        save(*args)
        saving.pop()

    def watched_write(folder: Path, rank: int, tensors: Any, slices: Any, document: Any = None) -> None:
        split = {entry.name: entry.shape for entry in slices}
        assert len(split) == 6, "kernel and bias of a layer, and the moments of both"
        assert not split.keys() & tensors.keys(), "a member writes a split variable as one tensor"
        for name, shape in split.items():
            sizes = [tensors[entry.key].size for entry in slices if entry.name == name]
            shares.append(sum(sizes) / float(np.prod(shape)))
        assert shares[-1] == 1 / size
        assert (document is None) == (rank > 0)
        assert rank == 0 or len(tensors) == len(slices), "the chief writes what is not split"
        write(folder, rank, tensors, slices, document)

    def watched_gather(*args: Any, **options: Any) -> Any:
        assert not saving, "a member gathers a variable while it saves"
        return gather(*args, **options)

    FitCheckpoints.save = watched_save  # type: ignore[method-assign] # for this process
    tensor_files.save_part = watched_write  # type: ignore[assignment] # for this process
    split_arrays.multihost_utils.process_allgather = watched_gather
    return shares


def resume_split(folder: str, every: Any, ctx: Any) -> dict[str, float]:
    """Fit a model that is split over the members. Copies the checkpoint that it resumes from to `folder`."""
    Path(folder, f"pid-{ctx.generation}-{ctx.rank}").write_text(str(os.getpid()))
    shares = watch_saves(ctx.size)
    model = compiled_split()
    x, y = rows()
    peeked = ctx.checkpoint.peek()
    if peeked is not None and ctx.rank == 0:
        shutil.copytree(ctx.checkpoint._restore_dir, Path(folder, "checkpoint"))

    history = model.fit(
        x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0,
        callbacks=ctx.keras_callbacks(checkpoint_every=every),
    )  # fmt: skip
    refusal = ""
    try:
        ctx.export(model)
    except st.SpecError as error:
        refusal = str(error)
    assert ctx.rank or "hold parts of 'sequential/dense/kernel'" in refusal
    ctx.checkpoint.wait(60)
    return {
        "from": 0 if peeked is None else peeked.step,
        "loss": history.history["loss"][-1],
        "generation": ctx.generation,
        "part": model.layers[0].kernel.value.addressable_shards[0].data.size / model.layers[0].kernel.value.size,
        "share": max(shares),
    }


def read_checkpoint(checkpoint: str, ctx: Any) -> dict[str, float]:
    """Restore what a gang has saved of a split model: into parts of this gang, or whole where there is one member."""
    import keras

    from sparktrain.training.checkpoint.tensor_files import TensorFiles
    from sparktrain.training.checkpoint.training_state import restore
    from sparktrain.training.frameworks.keras.model_state import named

    if ctx.size > 1:
        model = compiled_split()
    else:
        model = network()
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    restored = restore(model, Path(checkpoint), ctx.rank, size=ctx.size)
    count = 0
    with TensorFiles(Path(checkpoint)) as files:
        for name, variable in named(model).items():
            if not name.startswith(("model/", "optimizer/")):
                continue
            stored = files.read(name)
            for shard in variable.value.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), stored[shard.index], name)
            count += 1
    kernel = model.layers[0].kernel.value
    part = kernel.addressable_shards[0].data.size / kernel.size
    return {"step": float(restored.step), "part": part, "variables": float(count)}


def loop_split(ctx: Any) -> dict[str, float]:
    """A loop of the user's own, in which every member saves a split model. Returns how often it has resumed."""
    model = compiled_split()
    x, y = rows()
    restored = ctx.checkpoint.restore(model)
    first = restored.step if restored is not None else 0
    losses = [float(restored["loss"])] if restored is not None else []
    for step in range(first, 4):
        losses.append(float(model.train_on_batch(x[:BATCH], y[:BATCH])[0]))
        ctx.checkpoint.save(step + 1, model, loss=losses[-1])
        ctx.checkpoint.wait(60)
        if step == 1 and ctx.rank == 1 and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"first": first, "generation": ctx.generation, "falls": float(losses == sorted(losses, reverse=True))}


def by_hand(ctx: Any) -> dict[str, float]:
    """Apply a distributed optimizer without `fit`, and train as a gang of JAX cannot. Returns what came of it."""
    import jax
    import keras

    weight = keras.Variable(np.ones(2, "float32"))
    optimizer = ctx.distribute(keras.optimizers.SGD(1.0))
    optimizer.build([weight])
    optimizer.apply([jax.numpy.full(2, float(ctx.rank))], [weight])
    assert np.asarray(weight.value).tolist() == [0.5, 0.5], weight
    slots = [variable.value for variable in optimizer.variables]

    def compiled(gradient: Any) -> Any:
        return optimizer.stateless_apply(slots, [gradient], [weight.value])

    refusals = [_refusal(lambda: jax.jit(compiled)(jax.numpy.ones(2)))]
    refusals += [_refusal(lambda: ctx.distribute(keras.optimizers.SGD(1.0), compression="fp16"))]
    x, y = rows()
    eager = network()
    eager.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse", run_eagerly=True)
    refusals += [_refusal(lambda: eager.fit(x, y, batch_size=BATCH, verbose=0))]
    uneven = network()
    uneven.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse")
    refusals += [_refusal(lambda: uneven.fit(x, y, batch_size=BATCH - ctx.rank, verbose=0))]
    for refusal, words in zip(refusals, REFUSALS, strict=True):
        assert words in refusal, refusal
    return {"refusals": len(refusals)}


REFUSALS = (
    "is applied in a compiled function of your own",
    "compression 'fp16' on JAX",
    "run_eagerly=True or jit_compile=False, and in a gang of JAX",
    "all members need batches of equal size",
)


def _refusal(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
