"""From SIGKILL of a member to the next optimizer step of its gang: two members, small model.

    python -m benchmarks.recovery [--kills 5] [--mb 100 1024] [--healing | --standby 1]

The second member kills itself after a few steps. With Horovod the other one keeps its process, also with megabytes of
weights and optimizer; with other rings the gang resumes from the chief's last checkpoint. Kills of executors are
measured in the same way, beside the time that Spark needs to run a task on a replacement. With `--standby` alone the
kills of gangs with processes that wait are measured, on agents without Spark; each kill comes once one is ready.

Large state is also measured beside what no system can leave out: to form a ring of two bare processes again, to copy
the state once to another process, and the step itself.
"""

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import sparktrain as st
from benchmarks.bare_ring import floor
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session, stage
from sparktrain.base.clock import SystemClock
from sparktrain.display.gang_text import restart_lines
from sparktrain.errors import SparktrainError
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import StandbysNoted
from tests.support.drill import pid_of

TARGET_S = 1.0
JAX_TARGET_S = 1.2
EXECUTOR_TARGET_S = 3.0
"""Limit beyond Spark's own replacement of the executor."""
EXECUTORS = 3
"""Executors that are killed."""
HEALING_TARGETS_S = {0: 0.6, 100: 1.2, 1024: 3.0}
"""By megabytes of state."""
STANDBY_TARGETS_S = {0: 0.3, 100: 0.5, 1024: 2.0}
"""The same with a process that waits."""
FLOOR_TARGET = 1.3
"""Limit of the whole pause, as a multiple of the sum of a bare ring, a copy of the state, and a step."""
STANDBY_FLOOR_TARGET = 1.2
"""The same with a process that waits, of a copy and a step."""
STEPS = 12
"""Between two kills."""
LARGE_MB = 500
LARGE_STEPS = 4
"""The same with more megabytes than `LARGE_MB`: there a step takes seconds."""
BATCH = 16
MEMBERS = 2


def train(folder: str, kills: int, victim: str, ctx, mb: int = 0, standby: int = 0):
    """Writes the moment of each step, and of each kill, to `folder`; `mb` is what weights and optimizer take."""
    import keras
    import numpy as np

    if not standby:  # a process that reads its rank can take the place of that rank alone
        _mark(folder, ctx, "entered")
    rng = np.random.default_rng(0)
    # No more steps than the kills need: each of them would count for nothing.
    x = rng.normal(size=((kills + 2) * steps_between(mb) * BATCH * MEMBERS, 20)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    side = int((mb * 2**20 / 12) ** 0.5)
    wide = [keras.layers.Dense(side, activation="relu") for _ in range(2)] if mb else []
    model = keras.Sequential([*wide, keras.layers.Dense(64, activation="relu"), keras.layers.Dense(2)])
    model.build((None, 20))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=ctx.distribute(keras.optimizers.Adam(1e-3)), loss=loss, jit_compile=False)
    watch = _watch(folder, kills, victim, ctx, steps_between(mb), standby)
    _time_checks(folder)
    if not standby:
        _mark(folder, ctx, "built")
    model.fit(
        ctx.shard((x, y), batch_size=BATCH),
        epochs=1,
        callbacks=[*ctx.keras_callbacks(checkpoint_every=None if mb else 5), watch],
        verbose=0,
    )


def _mark(folder, ctx, what: str) -> None:
    """Write when the second member has come to some place after the newest kill."""
    if ctx.rank == 1:
        Path(folder, f"{what}-{len(list(Path(folder).glob('kill-*')))}").write_text(repr(time.time()))


def _time_checks(folder) -> None:
    """Note how long this process takes to compare its weights first after each kill, and when it ends."""
    from sparktrain.training.frameworks.keras import glue

    check = glue.check_equal

    def timed(ring, model) -> None:
        started = time.perf_counter()
        check(ring, model)
        took = repr(time.perf_counter() - started)
        mark = Path(folder, f"check-{len(list(Path(folder).glob('kill-*')))}-{os.getpid()}")
        Path(folder, f"check-end-{os.getpid()}").write_text(took)
        if not mark.exists():
            mark.write_text(took)

    glue.check_equal = timed


def checks(folder: Path, when: object) -> float:
    """Seconds of the member that compared its weights last: the others wait for it, with or without that."""
    return min(float(path.read_text()) for path in folder.glob(f"check-{when}-*"))


def steps_between(mb: int) -> int:
    """Steps from one kill to the next with `mb` of state."""
    return LARGE_STEPS if mb > LARGE_MB else STEPS


def _watch(folder, kills, victim, ctx, steps, standby):
    import keras

    seen: list[float] = []  # when steps have ended; no attribute of the callback: a restart would restore it

    class Watch(keras.callbacks.Callback):
        """Records the first step, and kills the second member after some more."""

        def on_epoch_begin(self, epoch, logs=None):
            _mark(folder, ctx, "received")  # a process that takes a place has the state of the others here

        def on_train_batch_end(self, batch, logs=None):
            seen.append(time.time())
            # By the kills so far and not by generations: a ring that heals stays in its generation.
            past_kills = sorted(Path(folder).glob("kill-*"))
            number = len(past_kills) + 1
            step = int(self.model.optimizer.iterations)
            mark = Path(folder, f"step-{number}")
            # In a process that was not killed, the end of the step that all had finished is no recovery.
            recovers = len(seen) == 1 or not past_kills or step > int(past_kills[-1].read_text().split()[1])
            if ctx.rank == 0 and recovers and not mark.exists():
                mark.write_text(repr(time.time()))
            if len(seen) == steps and ctx.rank == 1 and number <= kills:
                Path(folder, f"pace-{number}").write_text(repr(seen[-1] - seen[-2]))
                while standby and not Path(folder, f"ready-{number}").exists():
                    time.sleep(0.01)
                draft = Path(folder, "draft")
                draft.write_text(f"{time.time()!r} {step}")
                draft.rename(Path(folder, f"kill-{number}"))
                os.kill(pid_of(victim), signal.SIGKILL)
                signal.pause()  # it outlives its executor for some steps, which would count as recovered

    return Watch()


def train_jax(folder: str, kills: int, victim: str, rank: int, ctx) -> None:
    """As `train`, a loop of JAX over the devices of both members; the member of `rank` kills."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("batch",))
    split = NamedSharding(mesh, PartitionSpec("batch"))
    x = jax.make_array_from_process_local_data(split, np.ones((16, 20), "float32"))

    @jax.jit
    def step(weights, x):
        return weights - 1e-3 * jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w).sum(axis=1) - 1) ** 2))(weights)

    restored = ctx.checkpoint.restore()
    first = 0 if restored is None else restored.step
    host_weights = np.ones((20, 64), "float32") if restored is None else restored["weights"]
    weights = jax.device_put(host_weights, NamedSharding(mesh, PartitionSpec()))
    for number in range(first + 1, first + 10 * STEPS):
        weights = step(weights, x).block_until_ready()
        if ctx.rank == 0 and number == first + 1:
            Path(folder, f"step-{ctx.generation}").write_text(repr(time.time()))
        if ctx.rank == 0 and number % 5 == 0:
            ctx.checkpoint.save(number, weights=np.asarray(weights))
        if number == first + STEPS and ctx.rank == rank and ctx.generation <= kills:
            Path(folder, f"kill-{ctx.generation}").write_text(repr(time.time()))
            os.kill(pid_of(victim), signal.SIGKILL)


def recoveries(
    spark,
    backend: str,
    runs: str,
    kills: int,
    victim: str = "member",
    *,
    rank: int | None = None,
    function: Callable[..., None] = train,
    mb: int = 0,
    standby: int = 0,
) -> list[float]:
    """Seconds from each kill to the next step of `function`. With a `rank` JAX trains, and that member is killed."""
    folder = Path(runs, f"moments-{backend}-{victim}-{function.__name__}-{rank}-{mb}")
    folder.mkdir(parents=True)
    params = {"folder": str(folder), "kills": kills, "victim": victim} | ({"mb": mb} if mb else {})
    if rank is not None:
        function = train_jax
        params["rank"] = rank
    options = quiet(runs)
    if standby:
        params["standby"] = standby
        options["standby"] = standby
        directory = str(Path(runs, options["name"]))
        threading.Thread(target=_announce, args=(directory, folder, kills), daemon=True).start()
    result = st.run(function, params, workers=MEMBERS, backend=backend, max_retries=kills, spark=spark, **options)
    assert len(result.restarts) == kills, "\n".join(restart_lines(result.restarts))
    moment = {path.name: float(path.read_text().split()[0]) for path in folder.iterdir()}
    if function is train:
        stages = {"received": "it has the state", "step": "the step has ended"}
        if not standby:
            stages = {"entered": "the function starts", "built": "it calls fit()", **stages}
        marks = [("kill", 0), *((mark, int(mark == "step")) for mark in stages)]
        spans = [
            median(moment[f"{end}-{n + after}"] - moment[f"{start}-{n + before}"] for n in range(1, kills + 1))
            for (start, before), (end, after) in pairwise(marks)
        ]
        parts = [f"{span:.2f} s until {stage}" for span, stage in zip(spans, stages.values(), strict=True)]
        print(f"{backend}, {mb} MB: {', '.join(parts)} (medians)")
    if function is train:
        pace = median(moment[f"pace-{number}"] for number in range(1, kills + 1))
        print(f"{backend}, {mb} MB: a step takes {pace:.2f} s, undisturbed (median)")
        if backend == "horovod":
            costs = [checks(folder, number) for number in range(1, kills + 1)]
            pauses = [moment[f"step-{number + 1}"] - moment[f"kill-{number}"] for number in range(1, kills + 1)]
            print(f"{backend}, {mb} MB: members compare their weights in {1000 * median(costs):.1f} ms after a kill, "
                  f"{100 * median(costs) / median(pauses):.1f} % of the pause, and in "
                  f"{1000 * checks(folder, 'end'):.1f} ms at the end (medians)")  # fmt: skip
            if mb > LARGE_MB:
                print(f"{backend}, {mb} MB: {beside_floor(mb, median(pauses), pace, waits=bool(standby))}")
    return [moment[f"step-{number + 1}"] - moment[f"kill-{number}"] for number in range(1, kills + 1)]


def beside_floor(mb: int, pause_s: float, step_s: float, *, waits: bool) -> str:
    """A pause beside what bare processes need, which are measured now. With one that `waits` no ring counts."""
    ring_s, copy_s = floor(mb)
    floor_s = copy_s + step_s + (0 if waits else ring_s)
    target = at_most(pause_s / floor_s, STANDBY_FLOOR_TARGET if waits else FLOOR_TARGET)
    return (
        f"{pause_s:.2f} s are {pause_s / floor_s:.2f} of {floor_s:.2f} s, {target}; a bare ring takes {ring_s:.2f} s, "
        f"a copy to another process {copy_s:.2f} s, a step {step_s:.2f} s"
    )


def _announce(directory: str, folder: Path, kills: int) -> None:
    """Let the members know, by files, how often a process that waits has become ready."""
    observer = None
    announced = 0
    while announced < kills:
        time.sleep(0.05)
        try:
            observer = observer or Observer(run_in(directory), SystemClock())
            observer.look()
        except SparktrainError:
            continue  # the run is not there yet
        notes = [record.text for record in observer.records if isinstance(record, StandbysNoted)]
        for number in range(announced + 1, sum(" ready" in note for note in notes) + 1):
            Path(folder, f"ready-{number}").write_text("0")
            announced = number


def replacements(spark, kills: int) -> list[float]:
    """Seconds from the kill of an executor to the end of a plain stage on two executors."""

    def work(number: int) -> dict[str, float]:
        time.sleep(0.2)
        return {"executor": pid_of("executor", above=2)}

    found = []
    for _ in range(kills):
        before = {int(each["executor"]) for each in stage(spark, 2, work)}
        started_at = time.time()
        os.kill(before.pop(), signal.SIGKILL)
        while len({each["executor"] for each in stage(spark, 2, work)}) < 2:
            pass
        found.append(time.time() - started_at)
    return found


def row(name: str, seconds: list[float], target_s: float | None = None) -> tuple[str, ...]:
    """The median and the range of some recoveries, beside their target if they have one."""
    middle = median(seconds)
    target = [] if target_s is None else [at_most(middle, target_s, " s")]
    return name, f"{middle:.2f} s", f"{min(seconds):.2f} to {max(seconds):.2f} s", *target


def others(spark, runs: str, kills: int) -> list[tuple[str, ...]]:
    """The rows of rings that restart, and of executors."""
    rows = [row("tensorflow", recoveries(spark, "tensorflow", runs, kills), TARGET_S)]
    for rank in (0, 1):
        seconds = recoveries(spark, "jax", runs, kills, rank=rank)
        rows.append(row(f"jax, rank {rank}", seconds, JAX_TARGET_S))
    own = median(replacements(spark, EXECUTORS))
    rows.append(("Spark's own replacement of an executor", f"{own:.2f} s", "", ""))
    for backend in ("horovod", "tensorflow"):
        seconds = recoveries(spark, backend, runs, EXECUTORS, "executor")
        rows.append(row(f"executor's kill, {backend}", seconds, round(own + EXECUTOR_TARGET_S, 2)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--mb", type=int, nargs="*", default=[100, 1024], help="megabytes of state")
    parser.add_argument("--healing", action="store_true", help="only rings in which the others keep their processes")
    parser.add_argument("--standby", type=int, default=0, help="measure with so many processes that wait")
    given = parser.parse_args()
    rows = []
    if given.standby:
        with TemporaryDirectory(prefix="sparktrain-benchmark-") as runs:
            for mb in (0, *given.mb):
                slots = st.local(slots=MEMBERS + given.standby)
                seconds = recoveries(slots, "horovod", runs, given.kills, mb=mb, standby=given.standby)
                rows.append(row(f"horovod, {mb} MB", seconds, STANDBY_TARGETS_S.get(mb, STANDBY_TARGETS_S[0])))
        title = f"SIGKILL of one of two members to the next step, standby={given.standby}, {given.kills} kills each"
        show(title, ("ring", "median", "all", "target"), rows)
        return
    with session() as (spark, runs):
        for mb in (0, *given.mb):
            seconds = recoveries(spark, "horovod", runs, given.kills, mb=mb)
            rows.append(row(f"horovod{f', {mb} MB' if mb else ''}", seconds, HEALING_TARGETS_S.get(mb, TARGET_S)))
        if not given.healing:
            rows += others(spark, runs, given.kills)
    title = f"SIGKILL of one of two members to the next step, {given.kills} kills each, {MASTER}"
    show(title, ("ring", "median", "all", "target"), rows)


if __name__ == "__main__":
    main()
