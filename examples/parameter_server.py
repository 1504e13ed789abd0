"""Asynchronous steps on parameter servers: TensorFlow's ParameterServerStrategy with a coordinator.

    sparktrain run examples/parameter_server.py:train --workers 3 --ps 1 --backend tensorflow

One of three workers is the chief: it alone runs this function, and schedules the steps. The other two compute them, and
the parameter server keeps the variables. Keras's fit does not support this, so the function schedules steps itself.
Workers do not wait for each other, and `optimizer.iterations` loses counts: learning rates must not depend on it.
"""

import keras
import numpy as np
import tensorflow as tf
from fashion_mnist import load

EPOCHS, STEPS, BATCH = 2, 100, 128


def train(ctx, learning_rate=0.1):
    strategy = ctx.strategy("parameter_server")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        optimizer = keras.optimizers.SGD(learning_rate)
        optimizer.build(model.trainable_variables)

    images, labels = load("train", 12_800)
    pixels = (images * 255).astype("uint8")  # a quarter of the bytes: workers get the dataset

    def batches():
        examples = tf.data.Dataset.from_tensor_slices((pixels, labels)).shuffle(12_800).repeat().batch(BATCH)
        return examples.map(lambda pixels, labels: (tf.cast(pixels, tf.float32) / 255, labels))

    def compute(images, labels):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def step(iterator):
        return strategy.run(compute, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    for epoch in range(EPOCHS):
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS)]
        coordinator.join()  # blocks until all are done; raises the error of a step
        ctx.report(epoch, loss=float(np.mean(coordinator.fetch(losses))))
    test_images, test_labels = load("t10k", 2_000)
    return {"accuracy": float((model(test_images).numpy().argmax(axis=1) == test_labels).mean())}
