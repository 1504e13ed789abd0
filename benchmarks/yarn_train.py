"""A small model for `benchmarks.yarn`, trained by a gang: each member records when and where its first step ended."""

import os
import time
from pathlib import Path


def train(folder, ctx):
    import keras
    import numpy as np

    x = np.linspace(-1, 1, 4096, dtype="float32").reshape(-1, 1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)

    def note(batch, logs):
        place = Path(folder, f"started-{ctx.rank}-{ctx.generation - 1}")
        if not place.exists():
            hidden = Path(folder, f".{ctx.rank}")
            hidden.write_text(f"{time.time()!r} {os.environ['CONTAINER_ID']}")
            hidden.rename(place)

    def stop(epoch, logs):
        model.stop_training = ctx.allreduce(float(Path(folder, "stop").exists()), average=False) > 0

    watch = keras.callbacks.LambdaCallback(on_train_batch_end=note, on_epoch_end=stop)
    callbacks = [*ctx.keras_callbacks(checkpoint_every=100), watch]
    model.fit(ctx.shard((x, x), batch_size=16), epochs=100_000, callbacks=callbacks, verbose=0)
    return {"size": float(ctx.size)}
