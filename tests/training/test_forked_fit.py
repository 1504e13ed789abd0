"""What a member does with the libraries that its zygote has imported: all that it could do in a fresh process."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparktrain.executor.zygote_process import ZygoteProcess
from tests.process.harness import MARK, Bench, marked

LIBRARIES = ("numpy", "pandas", "sklearn", "tensorflow", "keras")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A zygote that has imported the libraries."""
    mark = tmp_path.name
    zygote = ZygoteProcess(tmp_path, env={MARK: mark, "TF_CPP_MIN_LOG_LEVEL": "2"})
    zygote.start()
    assert await zygote.preload(LIBRARIES) == {}
    yield Bench(zygote, tmp_path)
    await zygote.close()
    assert not marked(mark)


def fit(lr, ctx):
    """A small model on tf.data with threads, beside what pandas and scikit-learn do with threads of their own."""
    import keras
    import numpy as np
    import pandas as pd
    import tensorflow as tf
    from sklearn.ensemble import RandomForestClassifier

    x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    forest = RandomForestClassifier(5, n_jobs=2, random_state=0).fit(x, y)
    mean = pd.DataFrame(x).groupby(y).mean().shape[0]
    data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (a * 2, b), num_parallel_calls=2).batch(32)
    dense, dropout, logits = keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.1), keras.layers.Dense(2)
    model = keras.Sequential([dense, dropout, logits])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(lr), loss, metrics=["accuracy"])
    report = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ctx.report(epoch, **logs))
    history = model.fit(data.prefetch(2), epochs=2, verbose=0, callbacks=[report])
    tensor = tf.reduce_mean(tf.constant([1.0, 2.0]))
    return {"loss": history.history["loss"][-1], "tensor": tensor, "forest": forest.score(x, y), "classes": mean}


async def test_fits_twice_from_one_zygote_and_a_seed_gives_the_same(bench: Bench) -> None:
    spare = await bench.zygote.fork()
    first = await bench.run(fit, params={"lr": 0.1}, metric="loss")
    again = await bench.run(fit, params={"lr": 0.1}, metric="loss")
    other = await bench.run(fit, params={"lr": 0.1}, metric="loss", seed=12)

    assert first.metrics == again.metrics
    assert first.metrics["loss"] != other.metrics["loss"]
    assert first.metrics["tensor"] == 1.5
    assert [report.step for report in first.reports] == [0, 1]
    assert set(first.reports[0].metrics) == {"accuracy", "loss"}
    os.kill(spare.pid, 0)
