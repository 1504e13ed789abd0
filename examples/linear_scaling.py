"""The linear scaling rule: a Horovod ring with k times the batch and k times the learning rate, against one process.

    python examples/linear_scaling.py
    sparktrain run examples/linear_scaling.py:train --workers 2 --backend horovod --local --slots 2

Each member computes gradients of its own batch, and the ring averages them: a step of two members has twice the
examples, an epoch half the steps. So the rate is twice as high (Goyal et al., arXiv 1706.02677), after an epoch in
which it rises from the rate of one process. After some epochs the accuracy is about that of one process.
"""

import keras
from fashion_mnist import load

import sparktrain as st

BATCH, IMAGES = 64, 12_800


def train(ctx, learning_rate=0.02, epochs=4):
    steps = IMAGES // (BATCH * ctx.size)
    highest = ctx.scale_lr(learning_rate)
    rate = st.Warmup(highest, warmup_steps=steps, start=learning_rate)
    model = keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=ctx.distribute(keras.optimizers.SGD(rate, momentum=0.9)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    data = ctx.shard(load("train", IMAGES), batch_size=BATCH, shuffle=True)
    model.fit(data, epochs=epochs, callbacks=ctx.keras_callbacks(), verbose=0)
    found = model.evaluate(*load("t10k", 5_000), batch_size=500, verbose=0, return_dict=True)
    return {"steps": epochs * steps, "rate": highest, "accuracy": found["accuracy"]}


def compare(pool, **options):
    """A line of the table for one process, and for a ring of two."""
    yield f"{'members':>7}  {'examples/step':>13}  {'rate':>5}  {'steps':>5}  accuracy"
    for members in (1, 2):
        found = pool.run(train, workers=members, backend="horovod", **options).metrics
        yield (
            f"{members:>7}  {BATCH * members:>13}  {found['rate']:>5.2f}  {found['steps']:>5.0f}  "
            f"{found['accuracy']:>8.3f}"
        )


if __name__ == "__main__":
    with st.pool(st.local(slots=2), preload=["keras", "tensorflow", "horovod.tensorflow"]) as pool:
        for line in compare(pool, seed=1, progress=False):
            print(line)
