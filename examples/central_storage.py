"""A loop over the devices of one process, with all variables on the CPU: TensorFlow's CentralStorageStrategy.

    sparktrain run examples/central_storage.py:train

For models with variables that are too large for each GPU. Keras's fit and metrics compute wrong numbers under it, so
this is a loop of its own; layers with a state of their own, such as BatchNormalization and Dropout, fail there too.
"""

import keras
import tensorflow as tf
from fashion_mnist import load

EPOCHS, BATCH = 2, 128


def train(ctx, learning_rate=0.1, devices=2):
    strategy = ctx.strategy("central_storage", devices=devices)
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

    def part_of_step(images, labels):
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
            loss = tf.reduce_sum(losses) / BATCH  # the devices' losses and gradients are added up
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(part_of_step, args=batch), axis=None)

    examples = tf.data.Dataset.from_tensor_slices(load("train", 12_800)).shuffle(12_800, seed=ctx.seed)
    batches = strategy.experimental_distribute_dataset(examples.batch(BATCH, drop_remainder=True))
    for epoch in range(EPOCHS):
        losses = [float(step(batch)) for batch in batches]
        ctx.report(epoch, loss=sum(losses) / len(losses))
    images, labels = load("t10k", 2_000)
    return {"accuracy": float((model(images).numpy().argmax(axis=1) == labels).mean())}
