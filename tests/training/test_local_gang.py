"""A gang on TensorFlow's collectives whose agents are processes of this machine, without Spark."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st

pytestmark = pytest.mark.timeout(240)


def train(folder: str, ctx: Any) -> dict[str, float]:
    import os
    import signal

    import keras
    import tensorflow as tf

    rows = np.arange(64, dtype=np.float32).reshape(-1, 1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer=ctx.distribute(keras.optimizers.SGD(1e-4)), loss="mse")

    class DieOnce(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if ctx.generation == 1 and epoch == 1 and ctx.rank == 1:
                os.kill(os.getppid(), signal.SIGKILL)  # the zygote: an infrastructure loss, which is retried

    data = tf.data.Dataset.from_tensor_slices((rows, 2 * rows)).batch(8)
    seen = model.fit(ctx.shard(data), epochs=4, verbose=0, callbacks=[*ctx.keras_callbacks(), DieOnce()]).history
    weights = np.concatenate([each.ravel() for each in model.get_weights()])
    np.save(Path(folder, f"weights-{ctx.rank}.npy"), weights)
    return {"loss": seen["loss"][-1], "size": ctx.size, "generation": ctx.generation}


def test_a_gang_of_two_trains_as_one_and_outlives_a_lost_zygote(tmp_path: Path) -> None:
    made = st.run(
        train, {"folder": str(tmp_path)}, workers=2, backend="tensorflow", spark=st.local(slots=2),
        dir=str(tmp_path / "runs"), name="gang", progress=False,
    )  # fmt: skip
    assert made.metrics["size"] == 2
    assert made.metrics["generation"] == 2
    assert len(made.restarts) == 1
    first, second = (np.load(tmp_path / f"weights-{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()
    assert abs(first[0]) > 0
