"""The training of the goodput benchmark: its weights count how often each row was trained, at a fixed pace."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sparktrain.base.clock import pause

ROWS = 768
BATCH = 8
STEP_S = 0.05
"""What a step takes at least, so that the load of the one machine does not decide how many fit in a minute."""
STOP = "stop"
"""The file with which the training ends, after its epoch."""
STEPS = "steps"
"""The suffix of the files to which members append their steps."""


class Pace(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Notes each step with its time, and ends it no sooner than `STEP_S` after the one before."""

    def __init__(self, folder: Path, ctx: Any) -> None:
        super().__init__()
        process = f"{ctx.rank}-{time.time_ns()}"
        self._stop = folder / STOP
        self._is_chief = ctx.rank == 0
        self._file = (folder / f"{process}.{STEPS}").open("a")
        self._ends_at = 0.0
        self._note(host=socket.gethostname(), pid=os.getpid(), rank=ctx.rank, generation=ctx.generation)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pause(max(0.0, self._ends_at - time.monotonic()))
        self._ends_at = time.monotonic() + STEP_S
        self._note(at=time.time(), step=int(self.model.optimizer.iterations.numpy()))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._is_chief and self._stop.exists():
            self.model.stop_training = True

    def _note(self, **values: Any) -> None:
        print(json.dumps(values), file=self._file, flush=True)


def train(folder: str, ctx: Any) -> dict[str, float]:
    """Fit a weight for each row, which gets one larger each time the gang trains this row.

    The result has how many rows have another weight than most, by how much at most, and the steps.
    """
    model = keras.Sequential([keras.Input((ROWS,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    # The loss of a member is the mean over its batch, and gradients are the mean over members.
    rate = float(BATCH * ctx.size)
    model.compile(ctx.distribute(keras.optimizers.SGD(rate)), lambda _, outputs: -outputs, jit_compile=False)
    data = ctx.shard((np.eye(ROWS, dtype="float32"), np.zeros((ROWS, 1), "float32")), batch_size=BATCH)
    model.fit(data, epochs=100_000, verbose=0, callbacks=[*ctx.keras_callbacks(), Pace(Path(folder), ctx)])
    counts = np.rint(model.get_weights()[0].ravel())
    epochs = float(np.median(counts))
    return {
        "steps": float(model.optimizer.iterations.numpy()),
        "epochs": epochs,
        "rows_lost": float(np.maximum(epochs - counts, 0).sum()),
        "rows_doubled": float(np.maximum(counts - epochs, 0).sum()),
    }
