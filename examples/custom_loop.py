"""A custom training loop over a ring: tf.GradientTape, and the methods of `ctx` that keep the members in step.

    sparktrain run examples/custom_loop.py:train --workers 2 --dir hdfs:///exp --name loop

Each member trains on its share of every batch, the tape averages the gradients over all members, and the chief saves
after each epoch: after the loss of a process all members resume from there.
"""

import keras
import tensorflow as tf
from fashion_mnist import load

EPOCHS, BATCH = 3, 64


def train(ctx, learning_rate=0.1):
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(learning_rate, momentum=0.9)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")  # so that the optimizer is saved too
    restored = ctx.checkpoint.restore(model)
    model.set_weights(ctx.broadcast(model.get_weights()))  # all members start with the chief's

    @tf.function
    def step(images, labels):
        with ctx.distribute_tape(tf.GradientTape()) as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    batches = ctx.shard(load("train", 12_800), batch_size=BATCH, shuffle=True)
    for epoch in range(restored.epoch if restored else 0, EPOCHS):
        losses = [step(images, labels) for images, labels in batches]
        loss = ctx.allreduce(float(tf.reduce_mean(losses)))  # the mean over all members
        if ctx.rank == 0:
            ctx.report(epoch, loss=loss)
            ctx.checkpoint.save(int(optimizer.iterations), model, epoch=epoch + 1)
    images, labels = load("t10k", 2_000)
    return {"accuracy": float((model(images).numpy().argmax(axis=1) == labels).mean())}
