"""What snapshots in memory cost a gang, and what a kill costs it with them.

    python -m benchmarks.memory_checkpoint [--mb 100 1024] [--rounds 8] [--block 40] [--kills 5]

Two members on this machine train dense layers of the given size; a round is a block of steps without snapshots and one
with them, in the same processes. What a snapshot adds to its steps stands beside a plain copy of so much memory. Then
the second member is killed, with no checkpoint in the store.
"""

import argparse
import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import sparktrain as st
from benchmarks.machine import at_most, show

COST_TARGET = 0.02
COPY_TARGET, COPIES = 1.2, 5
"""Limit of what a snapshot costs the steps, as a multiple of a plain copy, and how often that is measured."""
RESTART_TARGET_S = 1.0
LOST_TARGET_S = 1.0
LATER_S = 0.37
"""Kills come at other moments between two snapshots each time."""
PHASES = ("until the function starts", "model and data", "resume", "first step")
"""What follows a kill."""
ROWS = 16
LAYERS = 25
FIRST_BLOCKS = 1
"""Before those that count: the first snapshots take new memory, once."""
LOST_TARGET_STEPS = 1


def _width(mb: int) -> int:
    return int((mb * 2**20 / (4 * LAYERS)) ** 0.5)


def _model(mb: int, ctx):
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(_width(mb), activation="tanh") for _ in range(LAYERS)]
    model = keras.Sequential([keras.layers.Input((_width(mb),)), *layers])
    model.compile(optimizer=ctx.distribute(keras.optimizers.SGD(0.01)), loss="mse", jit_compile=False)
    return model


def _data(mb: int, ctx, steps: int):
    import numpy as np

    x = np.random.default_rng(0).random((2 * ROWS * steps, _width(mb)), "float32")
    return ctx.shard((x, x), batch_size=ROWS)


def _watch(memory, block_steps: int):
    """Have the callback of snapshots leave every second block of steps out; one that has the time of each step."""
    import keras

    inner, block = memory._take, {"times": [], "seconds": 0.0, "snapshots": 0}
    boundary = memory._boundary

    def take(epoch, batch):
        number = len(block["times"]) // block_steps
        if number >= FIRST_BLOCKS and (number - FIRST_BLOCKS) % 2 == 0:
            return
        started_at, was_due = time.perf_counter(), boundary._is_copy_due
        inner(epoch, batch)
        if number >= FIRST_BLOCKS:
            block["seconds"] += time.perf_counter() - started_at
            block["snapshots"] += was_due

    class Blocks(keras.callbacks.Callback):
        """All members start and end blocks after the same step, for they count steps."""

        def on_train_batch_end(self, batch, logs=None):
            block["times"].append(time.perf_counter())

    memory._take = take
    return Blocks(), block


def cost(folder: str, mb: int, rounds: int, block_steps: int, ctx):
    """Writes the times of all steps, the time that waits for snapshots, and how many of those there were."""
    callbacks = ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint="auto")
    [memory] = [each for each in callbacks if type(each).__name__ == "MeetAtBoundary"]
    blocks, found = _watch(memory, block_steps)
    steps = (FIRST_BLOCKS + 2 * rounds) * block_steps
    _model(mb, ctx).fit(_data(mb, ctx, steps), epochs=1, callbacks=[*callbacks, blocks], verbose=0)
    if ctx.rank == 0:
        Path(folder, f"cost-{mb}.json").write_text(json.dumps(found))


def killed(folder: str, mb: int, at_s: float, kills: int, ctx):
    """The second member kills itself about `at_s` seconds after the third step of each generation: each time later."""
    import keras

    phases = [time.time()]
    model = _model(mb, ctx)
    data = _data(mb, ctx, 250)
    phases.append(time.time())
    moments: list[float] = []  # no attribute of the callback: a restart would restore it

    class Watch(keras.callbacks.Callback):
        """Writes the moments until the end of the first step, and of the kill."""

        def on_train_batch_begin(self, batch, logs=None):
            if not moments:
                phases.append(time.time())

        def on_train_batch_end(self, batch, logs=None):
            moments.append(time.time())
            if len(moments) == 1 and ctx.rank == 0:
                Path(folder, f"step-{ctx.generation}").write_text(json.dumps([*phases, moments[0]]))
            if len(moments) < 4 or moments[-1] - moments[2] < at_s + LATER_S * ctx.generation:
                return
            if ctx.generation > kills:
                self.model.stop_training = True
            elif ctx.rank == 1:
                pace = (moments[-1] - moments[2]) / (len(moments) - 3)
                Path(folder, f"kill-{ctx.generation}").write_text(json.dumps([moments[-1], pace]))
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint="auto")
    model.fit(data, epochs=100, callbacks=[*callbacks, Watch()], verbose=0)


def _recoveries(pool, runs: str, mb: int, kills: int) -> tuple[list[list[float]], list[float], list[int]]:
    """For each kill the seconds of the phases until the end of the next step, and the seconds and steps of training
    that it cost.
    """
    folder = Path(runs, f"moments-{mb}")
    folder.mkdir()
    params = {"folder": str(folder), "mb": mb, "at_s": max(6.0, mb / 50), "kills": kills}
    options = {"dir": runs, "name": f"killed-{mb}", "progress": False, "max_retries": kills}
    result = pool.run(killed, params, workers=2, backend="tensorflow", **options)
    assert len(result.restarts) == kills, [each.cause for each in result.restarts]
    taken, lost = [], []
    for number, restart in enumerate(result.restarts, 1):
        at, pace = json.loads((folder / f"kill-{number}").read_text())
        moments = [at, *json.loads((folder / f"step-{number + 1}").read_text())]
        taken.append([later - before for before, later in pairwise(moments)])
        lost.append((restart.steps_lost or 0) * pace)
    return taken, lost, [restart.steps_lost or 0 for restart in result.restarts]


def main() -> None:
    """Print the costs and the recoveries for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--block", type=int, default=40, help="steps in a block")
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args()
    rows: list[tuple[str, str, str]] = []
    with TemporaryDirectory() as runs, st.pool(st.local(slots=2), preload=["tensorflow", "keras"]) as pool:
        for mb in options.mb:
            rows += _cost_rows(pool, runs, mb, options.rounds, options.block)
            if options.kills:
                rows += _kill_rows(pool, runs, mb, options.kills)
    show("snapshots in memory, gang of two", ("measure", "median (each)", "target"), rows)


def _cost_rows(pool, runs: str, mb: int, rounds: int, block_steps: int) -> list[tuple[str, str, str]]:
    params = {"folder": runs, "mb": mb, "rounds": rounds, "block_steps": block_steps}
    pool.run(cost, params, workers=2, backend="tensorflow", dir=runs, name=f"cost-{mb}", progress=False)
    found = json.loads(Path(runs, f"cost-{mb}.json").read_text())
    ends = found["times"][FIRST_BLOCKS * block_steps - 1 :: block_steps]
    took = [(later - before) / block_steps for before, later in pairwise(ends)]
    plain, kept = took[::2], took[1::2]
    each_slower = [after / before - 1 for before, after in zip(plain, kept, strict=True)]
    slower, slow = mean(kept) / mean(plain) - 1, ", ".join(f"{100 * each:.1f}" for each in each_slower)
    whole_s = block_steps * sum(kept)
    snapshot_s = block_steps * (sum(kept) - sum(plain)) / max(1, found["snapshots"])
    copy_s = _copy_s(mb)
    return [
        (f"{mb} MB: a step without, with", f"{1000 * mean(plain):.1f} ms, {1000 * mean(kept):.1f} ms", ""),
        (f"{mb} MB: slower by", f"{100 * slower:.1f} % ({slow})", at_most(100 * slower, 100 * COST_TARGET, " %")),
        (f"{mb} MB: a snapshot, a plain copy of so much memory", f"{snapshot_s:.2f} s, {copy_s:.2f} s", ""),
        (f"{mb} MB: ratio", f"{snapshot_s / copy_s:.2f}", at_most(snapshot_s / copy_s, COPY_TARGET)),
        (f"{mb} MB: waits for snapshots", f"{100 * found['seconds'] / whole_s:.1f} %", ""),
        (f"{mb} MB: between snapshots", f"{whole_s / max(1, found['snapshots']):.1f} s", ""),
    ]


def _copy_s(mb: int) -> float:
    """Seconds to copy so many megabytes within a process, to memory that is there already; the median of some."""
    import numpy as np

    source, target = np.ones(mb * 2**20, np.uint8), np.ones(mb * 2**20, np.uint8)
    seconds = []
    for _ in range(COPIES):
        started_at = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - started_at)
    return median(seconds)


def _kill_rows(pool, runs: str, mb: int, kills: int) -> list[tuple[str, str, str]]:
    phases, lost, steps = _recoveries(pool, runs, mb, kills)
    taken = [sum(each) for each in phases]
    parts = " + ".join(f"{median(each):.2f}" for each in zip(*phases, strict=True))
    rows = [(f"{mb} MB: {', '.join(PHASES)}", f"{parts} s", "")]
    for name, found, limit in (
        ("kill to next step", taken, RESTART_TARGET_S),
        ("training lost by a kill", lost, LOST_TARGET_S),
    ):
        each = ", ".join(f"{one:.2f}" for one in found)
        rows.append((f"{mb} MB: {name}", f"{median(found):.2f} s ({each})", at_most(median(found), limit, " s")))
    listed = ", ".join(map(str, steps))
    rows.append((f"{mb} MB: steps lost by a kill", f"{max(steps)} ({listed})", at_most(max(steps), LOST_TARGET_STEPS)))
    return rows


if __name__ == "__main__":
    main()
