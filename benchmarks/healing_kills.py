"""Kills of random members at random moments of a `fit` that heals: no step is lost, and the weights are the same.

    python -m benchmarks.healing_kills [--kills 200] [--each 20] [--size 2] [--seed 0]

A thread kills one of the members, whatever it does then, once they have trained a step since the kill before. Each run
ends as one without a kill does: the bits of weights, optimizer and moving averages of each member are compared.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import quiet

BATCH = 8
STEPS_PER_KILL = 150
DELAY_S = 0.5
"""The longest time from a step after one kill to the next kill."""
POLL_S = 0.002


def train(folder: str, steps: int, ctx: Any) -> None:
    """Train `steps` steps; note the process, its steps, and a digest of all that it ends with."""
    notes = Path(folder)
    write(notes / f"pid-{ctx.rank}", str(os.getpid()))
    digest = fit(steps, lambda step: write(notes / f"step-{ctx.rank}", f"{os.getpid()} {step}"), ctx)
    write(notes / f"end-{ctx.rank}", digest)


def fit(steps: int, note: Callable[[int], None], ctx: Any) -> str:
    """Train `steps` steps in three epochs, and call `note` after each with its number.

    Returns a digest of all that the member ends with: weights, optimizer, averages and the history.
    """
    import keras
    import numpy as np

    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(steps * BATCH // 3, 8)).astype("float32")
    y = rng.integers(0, 3, len(x))
    layers = keras.layers
    hidden = [layers.Dense(16, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.2)]
    model = keras.Sequential([keras.Input((8,)), *hidden, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=ctx.distribute(keras.optimizers.Adam(0.01)), loss=loss, metrics=["accuracy"])

    class Note(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            note(int(self.model.optimizer.iterations.numpy()))

    rows = ctx.shard((x, y), batch_size=BATCH // ctx.size, shuffle=True)
    history = model.fit(rows, epochs=3, verbose=0, callbacks=[*ctx.keras_callbacks(checkpoint_every=None), Note()])
    digest = hashlib.sha256(json.dumps(history.history).encode())
    for variable in (*model.variables, *model.optimizer.variables):
        digest.update(np.asarray(variable.value).tobytes())
    return digest.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a file that others read meanwhile."""
    draft = path.with_name(f"draft-{path.name}")
    draft.write_text(text)
    draft.rename(path)


class Killer:
    """Kills members of one run, each once all of them have trained a step since the kill before."""

    def __init__(self, folder: Path, kills: int, size: int, seed: int) -> None:
        self.kills: Counter[int] = Counter()
        """By rank."""
        self._folder = folder
        self._left = kills
        self._size = size
        self._draw = random.Random(seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while self._left and self._wait_for_steps() and not self._ended.wait(self._draw.uniform(0.0, DELAY_S)):
            rank = self._draw.randrange(self._size)
            pid = int((self._folder / f"pid-{rank}").read_text())
            if (self._folder / f"end-{rank}").exists():
                return
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has ended since: the run is over, or all members restart
                continue
            self.kills[rank] += 1
            self._left -= 1

    def _wait_for_steps(self) -> bool:
        """Until each process of the gang has trained a step from now on; False once the run has ended."""
        before = self._steps()
        while True:
            now = self._steps()
            if len(now) == self._size and all(before.get(rank) != step for rank, step in now.items()):
                return True
            if self._ended.wait(POLL_S):
                return False

    def _steps(self) -> dict[int, str]:
        steps = {}
        for rank in range(self._size):
            pid, step = self._folder / f"pid-{rank}", self._folder / f"step-{rank}"
            if pid.exists() and step.exists() and step.read_text().startswith(f"{pid.read_text()} "):
                steps[rank] = step.read_text()
        return steps


def run(pool: st.Pool, folder: Path, kills: int, size: int, seed: int, steps: int) -> tuple[st.RunResult, Killer]:
    """One run with `kills` kills, or fewer where it ends before."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    with Killer(notes, kills, size, seed) as killer:
        result = pool.run(
            train, {"folder": str(notes), "steps": steps}, workers=size, backend="horovod", seed=1,
            max_retries=2 * kills + 1, **quiet(str(folder)),
        )  # fmt: skip
    return result, killer


def digests(folder: Path, size: int) -> list[str]:
    """What each member of a run has ended with."""
    return [(folder / "notes" / f"end-{rank}").read_text() for rank in range(size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--each", type=int, default=20, help="kills in one run")
    parser.add_argument("--size", type=int, default=2, help="members")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started_at = time.perf_counter()
    steps = STEPS_PER_KILL * given.each
    kills: Counter[int] = Counter()
    restarts: list[Any] = []
    unequal = 0
    with st.pool(st.local(slots=given.size), preload=["tensorflow", "keras", "horovod.tensorflow"]) as pool:
        runs = Path(tempfile.mkdtemp(prefix="healing-kills-"))
        run(pool, runs / "undisturbed", 0, given.size, 0, steps)
        expected = digests(runs / "undisturbed", given.size)
        number = 0
        while kills.total() < given.kills:
            folder = runs / str(number)
            most = min(given.each, given.kills - kills.total())
            result, killer = run(pool, folder, most, given.size, given.seed + number, steps)
            kills += killer.kills
            restarts += result.restarts
            unequal += digests(folder, given.size) != expected
            number += 1
    healed = [restart for restart in restarts if restart.healed]
    lost = sum(restart.steps_lost or 0 for restart in restarts)
    reasons = Counter(restart.cause for restart in restarts if not restart.healed)
    rows = [
        ("kills, by rank", ", ".join(f"{count} of {rank}" for rank, count in sorted(kills.items())), ""),
        ("healed; restarts of all members", f"{len(healed)}; {len(restarts) - len(healed)}", ""),
        ("steps repeated", str(lost), at_most(lost, 0)),
        ("runs that end with other bits", f"{unequal} of {number}", at_most(unequal, 0)),
        ("from a kill to training again, median", f"{median(each.seconds for each in healed):.2f} s", ""),
        ("total time", f"{time.perf_counter() - started_at:.0f} s", ""),
    ]
    show(f"Kills at random moments of a fit, {given.size} members on this machine", ("", "", "target"), rows)
    for reason, count in reasons.most_common():
        print(f"{count} restarts of all members: {reason}")


if __name__ == "__main__":
    main()
