"""Keras's fit over all devices of all members in step: TensorFlow's MultiWorkerMirroredStrategy.

    sparktrain run examples/multi_worker_mirrored.py:train --workers 2 --backend tensorflow

Every member runs the same code, with the whole dataset and the batch size of all members together: TensorFlow divides
each batch. An epoch costs about half a second by itself, so few long epochs are better than many short ones.
"""

import keras
from fashion_mnist import load

EPOCHS, BATCH = 2, 128


def train(ctx, learning_rate=0.1):
    strategy = ctx.strategy("multi_worker_mirrored")  # before any other call of TensorFlow
    with strategy.scope():  # model, optimizer and metrics belong in here
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
    history = model.fit(images, labels, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    if ctx.rank == 0:
        for epoch, loss in enumerate(history.history["loss"]):
            ctx.report(epoch, loss=loss)
    loss, accuracy = model.evaluate(*load("t10k", 2_000), batch_size=500, verbose=0)  # all members evaluate
    return {"accuracy": accuracy, "loss": loss}
