"""What it costs a member to note its steps and collectives.

    python -m benchmarks.step_trace [--steps 400] [--rounds 6]

Two members on this machine train a small network by `fit`; a round is a call of `fit` that notes nothing, and one that
notes all, in the same processes. Beside that, the notes of one step are taken in a loop, in this process alone.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session
from benchmarks.step_time import data, network

TARGET = 0.005
WARM_UP = 50
LOOP = 100_000
CALLS_IN_ROW = 100
REPORT_S = 0.5
"""A member computes where its steps went no more often."""


def members(folder: str, steps: int, rounds: int, ctx: Any) -> float:
    """Writes the median step of each call of `fit`, in seconds: without notes, and with them."""
    import keras

    class Watch(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.ends = []

        def on_train_batch_end(self, batch, logs=None):
            self.ends.append(time.perf_counter())

    def fit(noted: bool) -> float:
        watch = Watch()
        model = network()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=ctx.distribute(keras.optimizers.SGD(0.01)), loss=loss, jit_compile=False)
        callbacks = ctx.keras_callbacks(checkpoint_every=None, memory_checkpoint=None)
        # As this function is for the gang alone, it may look for the ring where no program of a user does.
        ring = ctx._gang.ring
        notes, timed = ring.notes, ring._timed
        if not noted:
            [progress] = [each for each in callbacks if type(each).__name__ == "ProgressCallback"]
            progress._reports._notes = None
            ring.notes = None
            ring._timed = lambda tensors, operate: operate()
        try:
            model.fit(data(steps), epochs=1, verbose=0, callbacks=[*callbacks, watch])
        finally:
            ring.notes, ring._timed = notes, timed
        return median(after - before for before, after in pairwise(watch.ends[WARM_UP:]))

    found = [[fit(noted) for noted in ((False, True) if number % 2 else (True, False))] for number in range(rounds)]
    pairs = [pair if number % 2 else pair[::-1] for number, pair in enumerate(found)]
    if ctx.rank == 0:
        Path(folder, "steps.json").write_text(json.dumps(pairs))
    return 0.0


def alone() -> tuple[float, float]:
    """Seconds for the notes of one step with one collective, and for what is computed for a report."""
    from sparktrain.training.collectives.step_notes import StepNotes

    notes = StepNotes()
    started_at = time.perf_counter()
    for number in range(LOOP):
        notes.call(notes.now_ns())
        notes.step(number)
    step_s = (time.perf_counter() - started_at) / LOOP
    started_at = time.perf_counter()
    for _ in range(100):
        notes.times()
    return step_s, (time.perf_counter() - started_at) / 100


def traced() -> float:
    """Seconds for the notes of one collective in a traced function: the least of several measurements."""
    import tensorflow as tf

    from sparktrain.training.frameworks.tensorflow.collectives.call_log import CallLog, CallTimes

    times = CallTimes()
    log = CallLog()

    @tf.function
    def noted(x):
        started = times.start([x])
        with tf.control_dependencies([log.note("allreduce", "one", [x])]):
            result = x + 1.0
        times.end(started, [result], log.number())
        return result

    @tf.function
    def plain(x):
        with tf.control_dependencies([log.note("allreduce", "one", [x])]):
            return x + 1.0

    def least(function: Any) -> float:
        x = tf.zeros(4)
        found = []
        for _ in range(CALLS_IN_ROW):
            started_at = time.perf_counter()
            for _ in range(CALLS_IN_ROW):
                function(x)
            found.append((time.perf_counter() - started_at) / CALLS_IN_ROW)
        return min(found[1:])

    return least(noted) - least(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    note_s, report_s = alone()
    traced_s = traced()
    rows = []
    with session() as (spark, runs), st.pool(spark, agents=2, preload=["tensorflow", "keras"]) as pool:
        for backend in ("horovod", "tensorflow"):
            params = {"folder": str(runs), "steps": given.steps, "rounds": given.rounds}
            pool.run(members, params, workers=2, backend=backend, **quiet(str(Path(runs))))
            pairs = json.loads(Path(runs, "steps.json").read_text())
            without_s, noted_s = (median(pair[side] for pair in pairs) for side in (0, 1))
            cost = median(noted / without - 1 for without, noted in pairs)
            rows.append((f"gang of two on {backend}", f"{1000 * without_s:.2f} ms", f"{1000 * noted_s:.2f} ms",
                         f"{100 * cost:.2f} %", at_most(100 * cost, 100 * TARGET, " %")))  # fmt: skip
            alone_cost = (note_s + traced_s) / without_s + report_s / REPORT_S
            taken = f"{1e6 * note_s:.1f} + {1e6 * traced_s:.0f} µs, report {1e6 * report_s:.0f} µs"
            rows.append(("  notes alone: Python + graph", "", taken,
                         f"{100 * alone_cost:.2f} %", at_most(100 * alone_cost, 100 * TARGET, " %")))  # fmt: skip
    title = f"Notes of steps: 4 layers of 256, {given.rounds} rounds of {given.steps} steps, {MASTER}"
    show(title, ("", "step without", "step with", "cost", "target"), rows)


if __name__ == "__main__":
    main()
