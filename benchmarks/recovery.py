"""From SIGKILL of a member to the next optimizer step of its restarted gang: two members, small model.

    python -m benchmarks.recovery [--kills 5]

In each generation the second member kills itself after a few steps; the gang resumes from the chief's last checkpoint.
Kills of executors are measured in the same way, beside the time that Spark needs to run a task on a replacement.
"""

import argparse
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session, stage
from tests.support.drill import pid_of

TARGET_S = 1.0
JAX_TARGET_S = 1.2
EXECUTOR_TARGET_S = 3.0
"""Limit beyond Spark's own replacement of the executor."""
EXECUTORS = 3
"""Executors that are killed."""
STEPS = 12
"""Between two kills."""


def train(folder: str, kills: int, victim: str, ctx):
    """Writes the moment of each step, and of each kill, to `folder`."""
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(4096, 20)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(2)])
    model.build((None, 20))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=ctx.distribute(keras.optimizers.Adam(1e-3)), loss=loss, jit_compile=False)
    watch = _watch(folder, kills, victim, ctx)
    model.fit(
        ctx.shard((x, y), batch_size=16),
        epochs=1,
        callbacks=[*ctx.keras_callbacks(checkpoint_every=5), watch],
        verbose=0,
    )


def _watch(folder, kills, victim, ctx):
    import keras

    seen: list[int] = []  # no attribute of the callback: a restart would restore it

    class Watch(keras.callbacks.Callback):
        """Records the first step, and kills the second member after some more."""

        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)
            # By the kills so far and not by generations: a ring that heals stays in its generation.
            past_kills = sorted(Path(folder).glob("kill-*"))
            number = len(past_kills) + 1
            step = int(self.model.optimizer.iterations)
            mark = Path(folder, f"step-{number}")
            # In a process that was not killed, the end of the step that all had finished is no recovery.
            recovers = len(seen) == 1 or not past_kills or step > int(past_kills[-1].read_text().split()[1])
            if ctx.rank == 0 and recovers and not mark.exists():
                mark.write_text(repr(time.time()))
            if len(seen) == STEPS and ctx.rank == 1 and number <= kills:
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
) -> list[float]:
    """Seconds from each kill to the next step of `function`. With a `rank` JAX trains, and that member is killed."""
    folder = Path(runs, f"moments-{backend}-{victim}-{function.__name__}-{rank}")
    folder.mkdir(parents=True)
    params = {"folder": str(folder), "kills": kills, "victim": victim}
    if rank is not None:
        function = train_jax
        params["rank"] = rank
    result = st.run(function, params, workers=2, backend=backend, max_retries=kills, spark=spark, **quiet(runs))
    assert len(result.restarts) == kills, json.dumps([each.summary for each in result.restarts])
    moment = {path.name: float(path.read_text().split()[0]) for path in folder.iterdir()}
    return [moment[f"step-{number + 1}"] - moment[f"kill-{number}"] for number in range(1, kills + 1)]


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


def row(name: str, seconds: list[float], target_s: float) -> tuple[str, str, str, str]:
    """The median and the range of some recoveries, beside their target."""
    middle = median(seconds)
    return name, f"{middle:.2f} s", f"{min(seconds):.2f} to {max(seconds):.2f} s", at_most(middle, target_s, " s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    rows = []
    with session() as (spark, runs):
        for backend in ("horovod", "tensorflow"):
            rows.append(row(backend, recoveries(spark, backend, runs, given.kills), TARGET_S))
        for rank in (0, 1):
            seconds = recoveries(spark, "jax", runs, given.kills, rank=rank)
            rows.append(row(f"jax, rank {rank}", seconds, JAX_TARGET_S))
        own = median(replacements(spark, EXECUTORS))
        rows.append(("Spark's own replacement of an executor", f"{own:.2f} s", "", ""))
        for backend in ("horovod", "tensorflow"):
            seconds = recoveries(spark, backend, runs, EXECUTORS, "executor")
            rows.append(row(f"executor's kill, {backend}", seconds, round(own + EXECUTOR_TARGET_S, 2)))
    title = f"SIGKILL of one of two members to the next step, {given.kills} kills each, {MASTER}"
    show(title, ("ring", "median", "all", "target"), rows)


if __name__ == "__main__":
    main()
