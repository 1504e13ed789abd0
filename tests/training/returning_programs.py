"""A program of TensorFlow 1 that loses one of its members once, and trains until that one has returned."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.training import local_gang

KILL_AT = 60
"""Global step at which the chief ends the member."""
STEPS_AGAIN = 20
"""Steps of its next process that the chief waits for."""
STEPS_LEFT = 50
"""Steps from then to the end, for all workers together."""
DEADLINE_S = 60.0


def trained(folder: str, ctx: Any, victim: int, sync: bool = False, kills: str = "member") -> dict[str, float]:
    """Train between graphs. Rank `victim` is killed once, or its agent."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    spec = ctx.cluster_spec
    cluster = tf.train.ClusterSpec({"ps": spec["ps"], "worker": [*spec["chief"], *spec.get("worker", ())]})
    job, index = ("ps", ctx.index) if ctx.role == "ps" else ("worker", ctx.rank)
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    steps = _note_process(folder, ctx.rank, kills)
    if job == "ps":
        server.join()
    return _train(cluster, server, index, steps, Killer(Path(folder), victim, cluster), sync)


def clustered(args: Any, ctx: Any) -> None:
    """The same as the `map_fun` of a TFCluster."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    cluster, server = ctx.start_cluster_server()
    steps = _note_process(args["folder"], ctx.sparktrain.rank)
    if ctx.job_name == "ps":
        server.join()
    _train(cluster, server, ctx.task_index, steps, Killer(Path(args["folder"]), args["victim"], cluster))


def _note_process(folder: str, rank: int, kills: str = "member") -> Path:
    """The new file of this process, which its steps go to."""
    from tests.support.drill import pid_of

    steps = Path(folder, f"rank-{rank}-{time.monotonic_ns():020}-{pid_of(kills)}")
    steps.touch()
    return steps


def _train(
    cluster: Any, server: Any, index: int, steps: Path, killer: "Killer", sync: bool = False
) -> dict[str, float]:
    """Train worker `index` until the chief, which is the first worker and has the killer, ends it."""
    import tensorflow.compat.v1 as tf

    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        x, y = (tf.placeholder(tf.float32, [None, width]) for width in (5, 1))
        hidden = tf.tanh(x @ tf.get_variable("hidden", [5, 8]) + tf.get_variable("bias", [8]))
        loss = tf.reduce_mean(tf.square(hidden @ tf.get_variable("out", [8, 1]) - y))
        step = tf.train.get_or_create_global_step()
        optimizer, hooks = tf.train.GradientDescentOptimizer(0.01), []
        if sync:
            workers = cluster.num_tasks("worker")
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers - 1, workers)
            hooks.append(optimizer.make_session_run_hook(index == 0))
        train = optimizer.minimize(loss, global_step=step)
    data, end = local_gang.rows(), steps.with_name("end")
    with tf.train.MonitoredTrainingSession(server.target, index == 0, hooks=hooks) as session:
        at = 0
        while not (end.exists() and at >= int(end.read_text())):
            _, last, at = session.run([train, loss, step], dict(zip((x, y), data, strict=True)))
            with steps.open("a") as file:
                file.write(f"{time.monotonic()} {at}\n")
            if index == 0:
                killer.look(int(at))
            time.sleep(0.002)
    return {"loss": float(last), "last": float(at)}


class Killer:
    """In the chief: ends the victim once all workers train, and the training once its next process trains.

    A worker that has no session yet would wait for the victim to return: sessions start with all members.
    """

    def __init__(self, folder: Path, victim: int, cluster: Any) -> None:
        self._folder, self._victim = folder, victim
        self._workers = range(cluster.num_tasks("worker"))
        self._killed_at: float | None = None
        self._over = False

    def look(self, step: int) -> None:
        """The chief has finished `step`."""
        found = processes(self._folder, self._victim)
        if self._over or not found:
            return
        if self._killed_at is None:
            if step >= KILL_AT and all(self._trains(rank) for rank in self._workers):
                self._killed_at = time.monotonic()
                Path(self._folder, "killed").write_text(f"{self._killed_at} {step}")
                os.kill(int(found[-1].name.rpartition("-")[2]), signal.SIGKILL)
        elif (len(found) > 1 and len(steps_of(found[-1])) >= STEPS_AGAIN) or self._late():
            self._over = True
            draft = Path(self._folder, "end.draft")
            draft.write_text(str(step + STEPS_LEFT))
            draft.rename(Path(self._folder, "end"))

    def _trains(self, rank: int) -> bool:
        found = processes(self._folder, rank)
        return bool(found and steps_of(found[-1]))

    def _late(self) -> bool:
        return self._killed_at is not None and time.monotonic() > self._killed_at + DEADLINE_S


def processes(folder: Path, rank: int) -> list[Path]:
    """The files of the processes that rank `rank` has had, in their order. The name ends with the one to kill."""
    return sorted(folder.glob(f"rank-{rank}-*"))


def steps_of(path: Path) -> list[tuple[float, int]]:
    """When the process finished its steps, and the global step after each."""
    lines = (line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return [(float(at), int(step)) for at, step in lines]
