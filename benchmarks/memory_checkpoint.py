"""What snapshots in memory cost a gang, and what a kill costs it with them.

    python -m benchmarks.memory_checkpoint [--mb 100 1024] [--seconds 10] [--rounds 3] [--kills 3]

Two members on this machine train dense layers of the given size, in turns with and without snapshots, each time in
new processes. Then the second member is killed, with no checkpoint in the store.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import sparktrain as st
from benchmarks.machine import at_most, show

COST_TARGET = 0.02
RESTART_TARGET_S = 1.0
LOST_TARGET_S = 1.0
ROWS = 16
LAYERS = 25


def _width(mb: int) -> int:
    return int((mb * 2**20 / (4 * LAYERS)) ** 0.5)


def _model(mb: int, ctx):
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(_width(mb), activation="tanh") for _ in range(LAYERS)]
    model = keras.Sequential([keras.layers.Input((_width(mb),)), *layers])
    model.compile(optimizer=ctx.distribute(keras.optimizers.SGD(0.01)), loss="mse", jit_compile=False)
    return model


def _data(mb: int, ctx):
    import numpy as np

    x = np.random.default_rng(0).random((ROWS * 500, _width(mb)), "float32")
    return ctx.shard((x, x), batch_size=ROWS)


def _timer(seconds: float):
    import keras

    class Timer(keras.callbacks.Callback):
        """Ends a fit after some seconds, and counts its steps from the tenth on."""

        steps, began, took = 0, 0.0, 0.0

        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1
            now = time.perf_counter()
            if self.steps == 10:
                self.began = now
            self.took = now - self.began
            if self.steps > 10 and self.took >= seconds:
                self.model.stop_training = True

    return Timer()


def _blocked(callbacks):
    """Have the callback of snapshots measure the time that it takes; returns it, or None."""
    found = [each for each in callbacks if type(each).__name__ == "KeepInMemory"]
    for each in found:
        inner, each.seconds, each.snapshots = each._agree, 0.0, 0

        def agree(epoch, batch, each=each, inner=inner):
            began, before = time.perf_counter(), each._last
            inner(epoch, batch)
            each.seconds += time.perf_counter() - began
            each.snapshots += each._last != before

        each._agree = agree
    return found[0] if found else None


def cost(folder: str, mb: int, seconds: float, number: int, memory: str | None, ctx):
    """Writes the seconds of a step, the share of them that waits for snapshots, and how many there were."""
    timer = _timer(seconds)
    callbacks = ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint=memory)
    watched = _blocked(callbacks)
    _model(mb, ctx).fit(_data(mb, ctx), epochs=100, callbacks=[*callbacks, timer], verbose=0)
    if ctx.rank == 0:
        found = [timer.took / max(1, timer.steps - 10), 0.0, 0]
        if watched is not None:
            found[1:] = [watched.seconds / timer.took, watched.snapshots]
        Path(folder, f"cost-{mb}-{number}-{memory}.json").write_text(json.dumps(found))


def killed(folder: str, mb: int, at_s: float, kills: int, ctx):
    """The second member kills itself `at_s` seconds after the third step of each generation."""
    import keras

    model = _model(mb, ctx)

    moments: list[float] = []  # no attribute of the callback: a restart would restore it

    class Watch(keras.callbacks.Callback):
        """Writes the moments of the first step and of the kill."""

        def on_train_batch_end(self, batch, logs=None):
            moments.append(time.time())
            if len(moments) == 1 and ctx.rank == 0:
                Path(folder, f"step-{ctx.generation}").write_text(repr(moments[0]))
            if len(moments) < 4 or moments[-1] - moments[2] < at_s:
                return
            if ctx.generation > kills:
                self.model.stop_training = True
            elif ctx.rank == 1:
                pace = (moments[-1] - moments[2]) / (len(moments) - 3)
                Path(folder, f"kill-{ctx.generation}").write_text(json.dumps([moments[-1], pace]))
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint="auto")
    model.fit(_data(mb, ctx), epochs=100, callbacks=[*callbacks, Watch()], verbose=0)


def _recoveries(pool, runs: str, mb: int, kills: int) -> tuple[list[float], list[float]]:
    folder = Path(runs, f"moments-{mb}")
    folder.mkdir()
    params = {"folder": str(folder), "mb": mb, "at_s": max(6.0, mb / 50), "kills": kills}
    options = {"dir": runs, "name": f"killed-{mb}", "progress": False, "max_retries": kills}
    result = pool.run(killed, params, workers=2, backend="tensorflow", **options)
    assert len(result.restarts) == kills, [each.cause for each in result.restarts]
    taken, lost = [], []
    for number, restart in enumerate(result.restarts, 1):
        at, pace = json.loads((folder / f"kill-{number}").read_text())
        taken.append(float((folder / f"step-{number + 1}").read_text()) - at)
        lost.append((restart.steps_lost or 0) * pace)
    return taken, lost


def main() -> None:
    """Print the costs and the recoveries for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    rows: list[tuple[str, str, str]] = []
    with TemporaryDirectory() as runs, st.pool(st.local(slots=2), preload=["tensorflow", "keras"]) as pool:
        for mb in options.mb:
            rows += _cost_rows(pool, runs, mb, options.seconds * max(1, mb // 200), options.rounds)
            rows += _kill_rows(pool, runs, mb, options.kills)
    show("snapshots in memory, gang of two", ("measure", "median (each)", "target"), rows)


def _cost_rows(pool, runs: str, mb: int, seconds: float, rounds: int) -> list[tuple[str, str, str]]:
    found = []
    for number in range(rounds):
        each = []
        for memory in (None, "auto"):
            params = {"folder": runs, "mb": mb, "seconds": seconds, "number": number, "memory": memory}
            name = f"cost-{mb}-{number}-{memory}"
            pool.run(cost, params, workers=2, backend="tensorflow", dir=runs, name=name, progress=False)
            each.append(json.loads(Path(runs, f"{name}.json").read_text()))
        found.append([each[0][0], *each[1]])
    plain, kept, share = (median(each[place] for each in found) for place in (0, 1, 2))
    shares = ", ".join(f"{100 * each[2]:.1f}" for each in found)
    gaps = ", ".join(f"{seconds / max(1, each[3]):.1f}" for each in found)
    each_slower = [each[1] / each[0] - 1 for each in found]
    slower, slow = median(each_slower), ", ".join(f"{100 * each:.1f}" for each in each_slower)
    return [
        (f"{mb} MB: a step without, with", f"{1000 * plain:.1f} ms, {1000 * kept:.1f} ms", ""),
        (f"{mb} MB: slower by", f"{100 * slower:.1f} % ({slow})", at_most(100 * slower, 100 * COST_TARGET, " %")),
        (f"{mb} MB: waits for snapshots", f"{100 * share:.1f} % ({shares})", ""),
        (f"{mb} MB: between snapshots", f"{gaps} s", ""),
    ]


def _kill_rows(pool, runs: str, mb: int, kills: int) -> list[tuple[str, str, str]]:
    taken, lost = _recoveries(pool, runs, mb, kills)
    rows = (("kill to next step", taken, RESTART_TARGET_S), ("training lost by a kill", lost, LOST_TARGET_S))
    return [
        (f"{mb} MB: {name}", f"{median(each):.2f} s ({', '.join(f'{one:.2f}' for one in each)})",
         at_most(median(each), limit, " s"))
        for name, each, limit in rows
    ]  # fmt: skip


if __name__ == "__main__":
    main()
