"""A small convolutional network on Fashion-MNIST: photographs of clothes in ten classes, 28 x 28 pixels.

The same function trains in each of these ways:

    sparktrain sweep examples/fashion_mnist.py:train --grid learning_rate=0.1,0.01 --grid dropout=0.2,0.5
    sparktrain run examples/fashion_mnist.py:train --workers 2 --param learning_rate=0.01 --param dropout=0.2
    sparktrain run examples/fashion_mnist.py:train --workers 2 --backend tensorflow ...
    sparktrain sweep examples/fashion_mnist.py:train --workers-per-trial 2 ...

It trains on 20,000 of the 60,000 training images, so that a trial takes well under a minute on one core, and validates
on 5,000 after each epoch. The result is the accuracy on all 10,000 test images after the training.
"""

import gzip
import os
import signal
from pathlib import Path

import keras
import numpy as np

BATCH, IMAGES = 64, 20_000


def train(learning_rate, dropout, ctx, epochs=6, kill_at=None):
    images, labels = load("train", 25_000)
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.BatchNormalization(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    steps = epochs * IMAGES // (BATCH * ctx.size)
    falling_rate = keras.optimizers.schedules.CosineDecay(ctx.scale_lr(learning_rate), decay_steps=steps)
    model.compile(
        optimizer=ctx.distribute(keras.optimizers.SGD(falling_rate, momentum=0.9)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,  # compiling takes longer than it saves in so short a training
    )
    model.fit(
        ctx.shard((images[:IMAGES], labels[:IMAGES]), batch_size=BATCH, shuffle=True),
        epochs=epochs,
        validation_data=(images[IMAGES:], labels[IMAGES:]),
        callbacks=[*ctx.keras_callbacks(checkpoint_every=100), *drill(kill_at, ctx, model)],
        verbose=0,
    )
    ctx.export(model)
    loss, accuracy = model.evaluate(*load("t10k", 10_000), batch_size=500, verbose=0)
    return {"accuracy": accuracy, "loss": loss}


def drill(kill_at, ctx, model):
    """A failure drill: the first process of the second member kills itself after step `kill_at`.

    Each process prints its number when it starts to train, and at the end, to the log of its member.
    """
    if kill_at is None:
        return []
    first_steps = []

    def start(logs):
        first_steps.append(int(model.optimizer.iterations))
        print(f"rank {ctx.rank} starts at step {first_steps[0]} in process {os.getpid()}", flush=True)

    def kill(batch, logs):
        if first_steps == [0] and model.optimizer.iterations == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(logs):
        print(f"rank {ctx.rank} ends at step {int(model.optimizer.iterations)} in process {os.getpid()}", flush=True)

    kills = {"on_train_batch_end": kill} if ctx.rank == 1 and ctx.generation == 1 else {}
    return [keras.callbacks.LambdaCallback(on_train_begin=start, on_train_end=end, **kills)]


def load(part, count, folder="/usr/share/datasets/fashion-mnist"):
    """The first `count` images (count, 28, 28, 1), from 0 to 1, and their labels (count,) of "train" or "t10k"."""
    images, labels = Path(folder, f"{part}-images-idx3-ubyte.gz"), Path(folder, f"{part}-labels-idx1-ubyte.gz")
    if not images.exists():
        raise FileNotFoundError(f"no {images}: install Debian's package with `apt-get install dataset-fashion-mnist`")
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    classes = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    return pixels[:count].astype("float32") / 255, classes[:count]
