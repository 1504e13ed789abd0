"""How long a checkpoint stalls training, beside a plain copy of the same arrays in memory.

Both write to memory that the process has already, as all saves but the first do: what a machine takes to hand out new
memory would be measured otherwise, and can be ten times as long as the copy.

    python -m benchmarks.checkpoint_stall [--saves 15] [--mb 100] [--hdfs]

With `--hdfs`, what is saved becomes a checkpoint in a real HDFS before the next save, in a thread of this process; else
nothing is made of it.
"""

import argparse
import queue
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import at_most, show
from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.protocol.pipe_messages import Snapshot, SnapshotAnswered
from sparktrain.rundir.checkpoints import Draft, write
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from tests.support.hadoop import hdfs

TARGET = 1.5


class Agent:
    """Takes every snapshot at once, as a fast agent would."""

    def __init__(self) -> None:
        self._steps: list[int] = []

    def send(self, message: Any) -> None:
        self._steps.append(message.step)

    def snapshot_answer(self, timeout_s: float) -> Any:
        return SnapshotAnswered(self._steps.pop(0)) if self._steps else None


class Writer:
    """Writes every snapshot to a store as a checkpoint, as an agent does."""

    def __init__(self, store: Store) -> None:
        self.seconds: list[float] = []
        self._store = store
        self._written: queue.Queue[SnapshotAnswered] = queue.Queue()

    def send(self, message: Snapshot) -> None:
        threading.Thread(target=self._write, args=(message,)).start()

    def _write(self, snapshot: Snapshot) -> None:
        member = Member(RunId("run"), TrialId(0), Generation(1))
        draft = Draft(member, snapshot.step, Path(snapshot.folder))
        self.seconds.append(_seconds(lambda: write(self._store, RunLayout("run"), draft)))
        shutil.rmtree(snapshot.folder)
        self._written.put(SnapshotAnswered(snapshot.step))

    def snapshot_answer(self, timeout_s: float) -> SnapshotAnswered | None:
        try:
            return self._written.get(timeout=timeout_s)
        except queue.Empty:
            return None


@contextmanager
def written_to_hdfs(folder: Path) -> Iterator[Writer]:
    """A writer to a new HDFS with two replicas."""
    with hdfs(folder / "hdfs") as cluster:
        yield Writer(open_store(f"{cluster.url}/runs"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=15)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--hdfs", action="store_true")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name:
        folder = Path(name)
        with written_to_hdfs(folder) if given.hdfs else nullcontext(Agent()) as agent:
            measure(agent, folder / "snapshots", given.saves, given.mb)


def measure(agent: Agent | Writer, folder: Path, saves: int, megabytes: int) -> None:
    """Save a number of times, and show the cost."""
    import keras
    import numpy as np

    from sparktrain.base.clock import SystemClock
    from sparktrain.training.checkpoint.saver import CheckpointSaver

    width = int((megabytes * 1e6 / 4 / 3) ** 0.5)  # Adam keeps two more of each weight
    model = keras.Sequential([keras.layers.Input((width,)), keras.layers.Dense(width, use_bias=False)])
    model.compile(optimizer=keras.optimizers.Adam(), loss="mse")
    model.optimizer.build(model.trainable_variables)
    arrays = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    targets = [np.ones_like(array) for array in arrays]
    size = sum(array.nbytes for array in arrays) / 1e6
    stalls, copies = [], []
    folder.mkdir()
    checkpoints = CheckpointSaver(agent, folder, "", 0, SystemClock())
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
    if isinstance(agent, Writer):
        rows.append(("to be written, read back and published in HDFS", f"{median(agent.seconds):.1f} s", ""))
    show(f"A model with Adam, {size:.0f} MB, {saves - 1} saves after the first", ("", "median", "target"), rows)


def _seconds(call: Any) -> float:
    started_at = time.perf_counter()
    call()
    return time.perf_counter() - started_at


if __name__ == "__main__":
    main()
