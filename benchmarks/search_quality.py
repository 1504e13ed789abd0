"""Does a sampler that learns find better networks than random draws? 60 trials, 20 seeds, on a tuned Keras task.

    python -m benchmarks.search_quality [--sampler tpe] [--trials 60] [--seeds 20] [--processes 2]

Each trial trains a dense Keras network with one hidden layer on 1,024 images of Fashion-MNIST for 8 epochs; its value
is the loss on 1,024 others. Learning rate, momentum, units, dropout and batch size are tuned, with four trials at a
time. The whole training is compiled once for each batch size, with the other parameters as inputs, and starts from the
same weights each time, so that a value is a function of the parameters. The test is the one-sided rank test of Mann and
Whitney on the best values of all seeds. The rival is `sampler="random"` with the same seeds.
"""

import argparse
import gzip
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from scipy.stats import mannwhitneyu

from benchmarks.machine import at_most, show
from sparktrain.config.distribution import choice, lograndint, loguniform, uniform
from sparktrain.search.sampled_space import space
from tests.support.searches import best

P_VALUE = 0.01
"""The chance of so clear an advantage without one."""
IMAGES = Path("/usr/share/datasets/fashion-mnist")
ROWS, PIXELS, CLASSES, EPOCHS, UNITS = 1024, 14 * 14, 10, 8, 128
SPACE = space(
    learning_rate=loguniform(1e-4, 10),
    momentum=uniform(0, 0.99),
    units=lograndint(4, UNITS),
    dropout=uniform(0, 0.8),
    batch=choice([16, 32, 64, 128]),
)


def rows() -> tuple[Any, Any]:
    """Images of half the width and height, from 0 to 1, and their labels."""
    import numpy as np

    images = np.frombuffer(gzip.decompress((IMAGES / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((IMAGES / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    pixels = images.reshape(-1, 14, 2, 14, 2)[: 2 * ROWS].astype("float32").mean(axis=(2, 4)) / 255
    return pixels.reshape(-1, PIXELS), labels[: 2 * ROWS].astype("int32")


@cache
def training() -> Callable[[Mapping[str, Any]], float]:
    """The function that is searched, made once for each process: a training, and its loss on the other images."""
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    image, scale = keras.Input((PIXELS,)), keras.Input((UNITS,))
    hidden = keras.layers.Multiply()([keras.layers.Dense(UNITS, "relu")(image), scale])
    model = keras.Model([image, scale], keras.layers.Dense(CLASSES)(hidden))
    first = [tf.constant(each.numpy()) for each in model.trainable_variables]
    images, labels = map(tf.constant, rows())

    def loss(weights: Any, scale: Any, x: Any, y: Any) -> Any:
        scales = tf.broadcast_to(scale, [x.shape[0], UNITS])
        logits, _ = model.stateless_call(weights, [], [x, scales])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    @tf.function(jit_compile=True, reduce_retracing=False)
    def train(batch: int, rate: Any, momentum: Any, units: Any, dropout: Any) -> Any:
        used = tf.cast(tf.range(UNITS) < units, tf.float32)
        weights, moving = first, [tf.zeros_like(each) for each in first]
        for step in tf.range(EPOCHS * ROWS // batch):
            start = (step * batch) % ROWS
            x = tf.ensure_shape(tf.slice(images, [start, 0], [batch, PIXELS]), [batch, PIXELS])
            y = tf.ensure_shape(tf.slice(labels, [start], [batch]), [batch])
            drawn = tf.random.stateless_uniform([batch, UNITS], [0, step])
            scale = used * tf.cast(drawn >= dropout, tf.float32) / (1 - dropout)
            with tf.GradientTape() as tape:
                tape.watch(weights)
                value = loss(weights, scale, x, y)
            slopes = tape.gradient(value, weights)
            moving = [momentum * speed - rate * slope for speed, slope in zip(moving, slopes, strict=True)]
            weights = [each + speed for each, speed in zip(weights, moving, strict=True)]
        return loss(weights, used, images[ROWS:], labels[ROWS:])

    def value_of(case: Mapping[str, Any]) -> float:
        numbers = [tf.constant(case[name], tf.float32) for name in ("learning_rate", "momentum", "dropout")]
        return float(train(case["batch"], *numbers[:2], tf.constant(case["units"]), numbers[2]))

    return value_of


def searched(trials: int, job: tuple[str, int]) -> tuple[float, float]:
    """The best value of a search by that sampler and seed, and the seconds of each training. Runs in a process."""
    spent = []

    def timed(case: Mapping[str, Any]) -> float:
        started_at = time.perf_counter()
        value = training()(case)
        spent.append(time.perf_counter() - started_at)
        return value

    sampler, seed = job
    return best(sampler, timed, SPACE, seed, trials), median(spent)


def quiet() -> None:
    """Keep the libraries of a process from printing and from starting threads."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}


def rows_of(sampler: str, trials: int, seeds: int, processes: int) -> list[tuple[str, ...]]:
    """The rows of this benchmark's table: name, the best values, seconds of a training, target."""
    jobs = [(name, seed) for seed in range(seeds) for name in (sampler, "random")]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=quiet) as workers:
        found = dict(zip(jobs, workers.map(partial(searched, trials), jobs), strict=True))
    values = {name: [found[name, seed][0] for seed in range(seeds)] for name in (sampler, "random")}
    p = float(mannwhitneyu(values[sampler], values["random"], alternative="less").pvalue)
    table = []
    for name in (sampler, "random"):
        seconds = median(found[name, seed][1] for seed in range(seeds))
        spread = f"{median(values[name]):.4f} ({min(values[name]):.4f} to {max(values[name]):.4f})"
        table.append((name, spread, f"{seconds:.3f}", f"p = {p:.2g}, {at_most(p, P_VALUE)}" if name == sampler else ""))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    table = rows_of(given.sampler, given.trials, given.seeds, given.processes)
    title = f"{given.trials} trainings of a Keras network for each of {given.seeds} seeds; medians, and their ranges"
    show(title, ("sampler", "best loss on other images", "seconds of a training", "against random"), table)


if __name__ == "__main__":
    main()
