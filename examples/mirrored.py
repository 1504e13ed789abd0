"""Keras's fit over the devices of one process in step: TensorFlow's MirroredStrategy.

    sparktrain run examples/mirrored.py:train

On a host with GPUs `ctx.strategy("mirrored")` uses all GPUs of the process. Without GPUs, `devices=2` splits the CPU
into two logical devices, which tests the program and is no faster.
"""

import keras
from fashion_mnist import load

EPOCHS, BATCH = 2, 128


def train(ctx, learning_rate=0.1, devices=2):
    strategy = ctx.strategy("mirrored", devices=devices)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.SGD(learning_rate),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
    images, labels = load("train", 12_800)
    report = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ctx.report(epoch, loss=logs["loss"]))
    model.fit(images, labels, batch_size=BATCH, epochs=EPOCHS, callbacks=[report], verbose=0)
    loss, accuracy = model.evaluate(*load("t10k", 2_000), batch_size=500, verbose=0)
    return {"accuracy": accuracy, "loss": loss}
