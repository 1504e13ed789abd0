"""Programs of JAX as users write them for several processes, and functions of gangs that use the ring of JAX."""

import os
import signal
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


def split_weights(mesh: Mesh) -> Any:
    """The first weights, in parts on the devices of `mesh`, and a number that all have."""
    places = {"first": PartitionSpec(None, "model"), "second": PartitionSpec("model"), "rate": PartitionSpec()}
    values = {**first_weights(), "rate": jnp.float32(0.1)}
    shardings = {name: NamedSharding(mesh, place) for name, place in places.items()}
    return {name: jax.device_put(np.asarray(value), shardings[name]) for name, value in values.items()}


def with_values(array: Any, stored: Any) -> Any:
    """An array laid out as `array`: each device reads its own part of `stored`."""
    return jax.make_array_from_callback(array.shape, array.sharding, lambda index: stored[index])


def train_split(folder: str, kill_at: int, ctx: Any) -> dict[str, float]:
    """Train weights that the members hold in parts, saved by name each third step; rank 1 of the first generation is
    killed in a step."""
    weights = split_weights(Mesh(np.array(jax.devices()), ("model",)))
    restored = ctx.checkpoint.restore()
    if restored is not None:
        weights = jax.tree.map(with_values, weights, restored["weights"])
    x, y = rows()

    @jax.jit
    def trained(weights: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        return {name: weight - weights["rate"] * gradients[name] for name, weight in weights.items()}, loss

    start = restored.step if restored is not None else 0
    for step in range(start + 1, STEPS + 1):
        weights, loss = trained(weights)
        if step == kill_at and ctx.rank == 1 and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        jax.block_until_ready(weights)
        if step % 3 == 0:
            ctx.checkpoint.save(step, weights=weights, name="split", rows=x[:2])
            ctx.checkpoint.wait(60)
    whole = {name: multihost_utils.process_allgather(weights[name], tiled=True) for name in ("first", "second")}
    if ctx.rank == 0:
        np.savez(Path(folder, f"size-{ctx.size}.npz"), **whole)
    part = weights["first"].addressable_shards[0].data.size / weights["first"].size
    return {"loss": float(loss) if start < STEPS else 0.0, "part": part, "from": float(start)}
