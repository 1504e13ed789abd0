"""Training functions that must do the same in this process and in a member."""

import json
import math
import os
import random
import sys
from pathlib import Path
from typing import Any


def plain(lr: float, shape: list[int], ctx: Any) -> dict[str, float]:
    ctx.report(0, loss=1.5, accuracy=0)
    ctx.report(7, loss=float("nan"))
    (Path(ctx.log_dir) / "seen.json").write_text(
        json.dumps([lr, shape, ctx.seed, ctx.rank, ctx.size, ctx.role, ctx.index, ctx.local_rank, ctx.generation])
    )
    return {"accuracy": lr * 2, "files": len(os.listdir(".")), "drawn": random.random(), "arguments": len(sys.argv)}


def without_context(lr: float) -> float:
    return lr


def shares(ctx: Any) -> dict[str, float]:
    one = ctx.allreduce({"x": 2.5})
    return {
        "mean": one["x"],
        "sum": ctx.allreduce(3, average=False),
        "chief": ctx.broadcast(4),
        "lr": ctx.scale_lr(0.5),
    }


def raises(ctx: Any) -> None:
    ctx.report(0, loss=1.0)
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("a cause\nof two lines") from error


def exits() -> None:
    sys.exit("no data")


def runs_out_of_memory() -> None:
    raise MemoryError("Unable to allocate 8 EiB")


def goes_back(ctx: Any) -> None:
    ctx.report(3, loss=1.0)
    ctx.report(3, loss=0.5)


def reports_text(ctx: Any) -> None:
    ctx.report(0, accuracy="low")


def returns_text() -> Any:
    return "fine"


def returns_more(ctx: Any) -> dict[str, Any]:
    ctx.report(0, accuracy=0.5, note="warm")
    return {"accuracy": 1.0, "note": "warm", "best_epoch": None, "curve": [0.5, 1.0]}


def returns_other() -> dict[str, float]:
    return {"accuracies": 1.0}


def diverges() -> dict[str, float]:
    return {"accuracy": math.nan}


def opens_relative() -> None:
    open("data.csv").close()


def sweeps() -> None:
    import sparktrain

    sparktrain.sweep(without_context, {"lr": [1.0]}, metric="loss")


def serves(ctx: Any) -> None:
    ctx.strategy("parameter_server")


def misspells(ctx: Any) -> None:
    ctx.strategy("mirored")


def counts(until: int, ctx: Any) -> dict[str, float]:
    """A loop without Keras that saves and restores its checkpoints."""
    at = ctx.checkpoint.restore()
    total, first = (0.0, 0) if at is None else (at["total"], at.step)
    for step in range(first + 1, until + 1):
        total += step * random.random()
        ctx.report(step, total=total)
        ctx.checkpoint.save(step, total=total, numbers=[1, 2.5], score=-abs(step - 3))
        ctx.checkpoint.wait()
        if step == 4 and at is None:
            raise RuntimeError("the first attempt ends here")
    return {"total": total, "first": first}


def fits(epochs: int, ctx: Any, fail_after: int = -1) -> dict[str, float]:
    """A fit with everything that a user writes for a gang."""
    import keras
    import numpy as np

    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == fail_after and ctx.generation == 1:
                ctx.checkpoint.wait()
                raise RuntimeError("lost")

    x = np.arange(24, dtype="float32").reshape(-1, 2) / 24
    model = keras.Sequential([keras.layers.Dense(3, activation="relu"), keras.layers.Dense(1)])
    optimizer = ctx.distribute(keras.optimizers.SGD(ctx.scale_lr(0.05), momentum=0.9))
    model.compile(optimizer, loss="mse", metrics=["mae"])
    data = ctx.shard((x, x.sum(1)), batch_size=4, shuffle=True)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=2, monitor="loss"), Fail()]
    history = model.fit(data, epochs=epochs, callbacks=callbacks, verbose=0)
    ctx.export(model)
    return {"loss": history.history["loss"][-1], "epochs": len(history.history["loss"])}


def main_of() -> int:
    """Whether the names of another trial, or of this package, are in `__main__`."""
    main = vars(sys.modules["__main__"])
    return int("left" in main or "run_member" in main)
