"""The training step of `fit`, fed by `to_tf` from the files of `data=`, beside the same rows as arrays in memory.

    python -m benchmarks.data_step [--rounds 5]

Two models: a perceptron 784-256-10 on rows of 784 bytes, in batches of 256; and that of the example of a table, on 20
floats in one column and an embedded category, 24-64-32-1, in batches of 512. The member is this process. Rounds
alternate; a pass of each is left out. The CPU time of a step is that of all threads.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import tensorflow as tf

from benchmarks.machine import at_least, show
from benchmarks.member_data import FLOATS, floats, images, opened, written

TARGET = 0.97
"""Of the steps a second that arrays in memory reach."""
IMAGES, TABLE = "784-256-10 on bytes", "24-64-32-1 on a table"
ROWS = {IMAGES: 50_000, TABLE: 200_000}
BATCH = {IMAGES: 256, TABLE: 512}
ARRAYS, SLICES = "fit(x, y), arrays in memory", "from_tensor_slices, arrays in memory"
FED, SHUFFLED, SHUFFLED_ARRAYS = "to_tf", "to_tf, shuffled", "fit(x, y, shuffle=True), arrays in memory"
RIVAL = {FED: ARRAYS, SHUFFLED: SHUFFLED_ARRAYS}

Fit = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        for model in (IMAGES, TABLE):
            ways = _ways(model, Path(folder))
            rows += _rows(model, _rounds(ways, ROWS[model] // BATCH[model], given.rounds))
    title = f"A step of fit, {given.rounds} rounds"
    show(title, ("steps/s", "median", "all", "CPU ms a step", "of arrays", "target"), rows)


def _ways(model: str, folder: Path) -> dict[str, Fit]:
    batch = BATCH[model]
    table = images(ROWS[model]) if model == IMAGES else _table(ROWS[model])
    data = opened(written(str(folder), model.split()[0], table))
    features = "x" if model == IMAGES else ["numbers", "region"]
    arrays = data.to_numpy()
    x = arrays["x"] if model == IMAGES else {name: arrays[name] for name in features}
    y = arrays["y"]
    options = {"feature_columns": features, "label_columns": "y"}
    slices = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch).prefetch(tf.data.AUTOTUNE)
    network = _network(model)
    return {
        ARRAYS: lambda: network.fit(x, y, batch_size=batch, shuffle=False, verbose=0),
        SLICES: lambda: network.fit(slices, shuffle=False, verbose=0),
        FED: _fit(network, data.to_tf(batch_size=batch, **options)),
        SHUFFLED_ARRAYS: lambda: network.fit(x, y, batch_size=batch, verbose=0),
        SHUFFLED: _fit(network, data.to_tf(batch_size=batch, shuffle=True, **options)),
    }


def _fit(network: Any, feed: Any) -> Fit:
    return lambda: network.fit(feed, shuffle=False, verbose=0)


def _table(rows: int) -> pa.Table:
    table = floats(rows)
    numbers = np.stack([table[f"f{i}"].to_numpy() for i in range(FLOATS)], axis=1)
    offsets = np.arange(rows + 1, dtype=np.int32) * FLOATS
    region = np.random.default_rng(0).integers(0, 8, rows).astype(np.int32)
    return pa.table(
        {"numbers": pa.ListArray.from_arrays(offsets, numbers.reshape(-1)), "region": region, "y": table["y"]}
    )


def _network(model: str) -> Any:
    dense = keras.layers.Dense
    if model == IMAGES:
        layers = [keras.layers.Input((784,), dtype="uint8"), keras.layers.Rescaling(1 / 255)]
        network = keras.Sequential([*layers, dense(256, activation="relu"), dense(10)])
        loss: Any = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        numbers = keras.Input((FLOATS,), name="numbers")
        region = keras.Input((), dtype="int32", name="region")
        hidden = keras.layers.Concatenate()([numbers, keras.layers.Embedding(8, 4)(region)])
        for units in (64, 32):
            hidden = dense(units, activation="relu")(hidden)
        network = keras.Model([numbers, region], dense(1, activation="sigmoid")(hidden))
        loss = "binary_crossentropy"
    network.compile(optimizer="adam", loss=loss, jit_compile=False)
    return network


def _rounds(ways: dict[str, Fit], steps: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Steps a second, and the CPU time of a step in milliseconds, of each way."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name in list(ways) if turn % 2 else reversed(ways):
            wall, cpu = time.perf_counter(), time.process_time()
            ways[name]()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if turn:
                found[name].append((steps / wall, 1000 * cpu / steps))
    return found


def _rows(model: str, found: dict[str, list[tuple[float, float]]]) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        compared = ("", "")
        if name in RIVAL:
            ratio = median(own / rival for (own, _), (rival, _) in zip(each, found[RIVAL[name]], strict=True))
            compared = (f"{ratio:.2f}", at_least(ratio, TARGET))
        rates = [rate for rate, _ in each]
        all_of_them = ", ".join(f"{rate:.0f}" for rate in rates)
        cpu = median(spent for _, spent in each)
        yield f"{model}, {name}", f"{median(rates):.0f}", all_of_them, f"{cpu:.2f}", *compared


if __name__ == "__main__":
    main()
