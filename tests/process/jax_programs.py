"""Programs of JAX as users write them for several processes, and functions of gangs that use the ring of JAX."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.support.eager_gangs import Arrays

ROWS = 48
STEPS = 12


def rows() -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(ROWS, 5)).astype("float32")
    return x, np.sin(x.sum(axis=1, keepdims=True))


def loss_of(weights: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ weights["first"])
    return jnp.mean((hidden @ weights["second"] - y) ** 2)


def first_weights() -> Any:
    first, second = jax.random.split(jax.random.key(5))
    return {"first": jax.random.normal(first, (5, 8)) / 2, "second": jax.random.normal(second, (8, 1)) / 2}


def train_alone() -> dict[str, Any]:
    """What one process trains on all rows."""
    x, y = rows()
    weights = first_weights()
    step = jax.jit(jax.value_and_grad(loss_of))
    for _ in range(STEPS):
        loss, gradients = step(weights, x, y)
        weights = jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients)
    return {"loss": float(loss), **jax.tree.map(np.asarray, weights)}


def train(folder: str) -> dict[str, float]:
    """The program of a tutorial: `shard_map` over all processes. It knows nothing of sparktrain but its result."""
    jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    size = jax.process_count()
    mine = slice(jax.process_index() * ROWS // size, (jax.process_index() + 1) * ROWS // size)
    split = NamedSharding(mesh, PartitionSpec("batch"))
    x, y = (jax.make_array_from_process_local_data(split, array[mine]) for array in rows())
    weights = multihost_utils.host_local_array_to_global_array(first_weights(), mesh, PartitionSpec())

    def local_step(weights: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        gradients = jax.lax.pmean(gradients, "batch")
        changed = jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients)
        return changed, jax.lax.pmean(loss, "batch")

    specs = (PartitionSpec(), PartitionSpec("batch"), PartitionSpec("batch"))
    step = jax.jit(jax.shard_map(local_step, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False))
    for _ in range(STEPS):
        weights, loss = step(weights, x, y)
    multihost_utils.assert_equal(np.asarray(weights["first"].addressable_data(0)), "members differ")
    np.savez(Path(folder, f"rank-{jax.process_index()}.npz"), **jax.tree.map(lambda array: np.asarray(array), weights))
    jax.distributed.shutdown()
    return {"loss": float(loss), "size": size, "devices": len(jax.devices())}


class GangArrays(Arrays):
    """Those of JAX."""

    @property
    def array_type(self) -> type:  # type: ignore[override] # pickled as a value, it would be a copy of the class
        return jax.Array

    def made(self, values: list[Any], kind: str) -> Any:
        """See base class."""
        return np.array(values).astype(np.dtype(getattr(ml_dtypes, kind, kind)))

    def own(self, values: list[float]) -> Any:
        """See base class."""
        return jnp.array(values, "float32")

    def total(self, value: float) -> float:
        """See base class."""
        return float(multihost_utils.process_allgather(np.full(3, value)).sum()) / 3

    def state(self, step: int) -> dict[str, Any]:
        """A pytree of arrays of several types."""
        layers = [(jnp.full(3, step, jnp.bfloat16), jnp.ones((2, 0))), {"b": jnp.arange(4)}]
        return {"tree": {"layers": layers, "a": jnp.float32(step)}}

    def check_state(self, restored: Any) -> None:
        """See base class."""
        expected = self.state(restored.step)["tree"]
        for leaf, saved in zip(jax.tree.leaves(restored["tree"]), jax.tree.leaves(expected), strict=True):
            assert leaf.dtype == saved.dtype
            np.testing.assert_array_equal(leaf, saved)


def lose_quick_steps(ctx: Any) -> dict[str, float]:
    """Rank 1 is killed in step 30, long before the second report of a step is due."""
    total = 0.0
    with ctx.memory_checkpoints(every="1h") as memory:
        for step in range(1, 41):
            total += float(ctx.allreduce(np.ones(1))[0])
            if ctx.rank == 1 and step == 30 and ctx.generation == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            memory.step(step)
    return {"total": total}


def stop_together(folder: str, ctx: Any) -> dict[str, float]:
    """Rank 0 reports a loss that a rule stops; each member notes the step after which it sees that it should stop."""
    with ctx.memory_checkpoints() as memory:
        for step in range(1, 10_000):
            ctx.allreduce(np.ones(1))
            if ctx.rank == 0:
                ctx.report(step, loss=float(step))
            memory.step(step)
            if ctx.should_stop():
                break
            time.sleep(0.03)  # the work of a step: rules judge the reports of longer ones
    Path(folder, f"stopped-{ctx.rank}").write_text(str(step))
    return {"loss": float(step)}
