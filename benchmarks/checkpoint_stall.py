"""How long a checkpoint of 100 MB stalls training, beside a plain copy of the same arrays in memory.

Both write to memory that the process has already, as all saves but the first do: what a machine takes to hand out new
memory would be measured otherwise, and can be ten times as long as the copy.

python -m benchmarks.checkpoint_stall [--saves 15]
"""

import argparse
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import at_most, show

TARGET = 1.5
MEGABYTES = 100


class Agent:
    """Takes every snapshot at once, as a fast agent would."""

    def __init__(self) -> None:
        self._steps: list[int] = []

    def send(self, message: Any) -> None:
        self._steps.append(message.step)

    def kept(self, timeout_s: float) -> Any:
        from sparktrain.protocol.messages import Kept

        return Kept(self._steps.pop(0)) if self._steps else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=15)
    saves = parser.parse_args().saves
    import keras
    import numpy as np

    from sparktrain.clock import SystemClock
    from sparktrain.training.checkpoint import Checkpoints

    width = int((MEGABYTES * 1e6 / 4 / 3) ** 0.5)  # Adam keeps two more of each weight
    model = keras.Sequential([keras.layers.Input((width,)), keras.layers.Dense(width, use_bias=False)])
    model.compile(optimizer=keras.optimizers.Adam(), loss="mse")
    model.optimizer.build(model.trainable_variables)
    arrays = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    targets = [np.ones_like(array) for array in arrays]
    size = sum(array.nbytes for array in arrays) / 1e6
    stalls, copies = [], []
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        checkpoints = Checkpoints(Agent(), Path(folder), "", 0, SystemClock())
        for step in range(1, saves + 1):
            copies.append(_seconds(lambda: [*map(np.copyto, targets, arrays)]))
            stalls.append(_seconds(lambda step=step: checkpoints.save(step, model)))
            checkpoints.wait()
    ratio = median(stalls[1:]) / median(copies[1:])
    rows = [
        ("a plain copy", f"{1000 * median(copies[1:]):.1f} ms", ""),
        ("ctx.checkpoint.save", f"{1000 * median(stalls[1:]):.1f} ms", ""),
        ("ratio", f"{ratio:.2f}", at_most(ratio, TARGET)),
    ]
    show(f"A model with Adam, {size:.0f} MB, {saves - 1} saves after the first", ("", "median", "target"), rows)


def _seconds(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
