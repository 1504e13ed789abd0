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

ROWS = 48
STEPS = 12
KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "uint16", "complex64")


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


def lose_a_member(victim: int, how: str, ctx: Any) -> dict[str, float]:
    """Sum in each step; member `victim` of the first generation ends by a signal; the others resume."""
    restored = ctx.checkpoint.restore()
    total = 0.0 if restored is None else float(restored["total"])
    if restored is not None:
        leaves = jax.tree.leaves(restored["tree"])
        for leaf, saved in zip(leaves, jax.tree.leaves(tree_of(restored.step)), strict=True):
            assert leaf.dtype == saved.dtype
            np.testing.assert_array_equal(leaf, saved)
    for step in range(1 if restored is None else restored.step + 1, 21):
        if step == 8 and ctx.rank == victim and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "program":
            total += float(multihost_utils.process_allgather(np.ones(3)).sum()) / 3
        else:
            total += float(ctx.allreduce(jnp.ones(()), average=False))
        ctx.report(step, total=total)
        if ctx.rank == 0 and step % 2 == 0:
            ctx.checkpoint.save(step, total=total, tree=tree_of(step))
            ctx.checkpoint.wait()
    return {"total": total, "generation": ctx.generation, "from": 0 if restored is None else restored.step}


def tree_of(step: int) -> Any:
    """A pytree of arrays of several types."""
    return {
        "layers": [(jnp.full(3, step, jnp.bfloat16), jnp.ones((2, 0))), {"b": jnp.arange(4)}],
        "a": jnp.float32(step),
    }


def raise_in_a_member(ctx: Any) -> float:
    """Rank 1 has a mistake, and rank 0 waits for it in a collective."""
    if ctx.rank == 1:
        raise ValueError("rank 1 has no data")
    multihost_utils.sync_global_devices("start")
    return 1.0


def call_others(ctx: Any) -> None:
    """The members call different collectives."""
    if ctx.rank:
        ctx.broadcast(jnp.ones(3))
    else:
        ctx.allreduce(jnp.ones(4))


def carry(ctx: Any) -> dict[str, float]:
    """Each collective carries each kind of number."""
    for kind in KINDS:
        dtype = np.dtype(getattr(ml_dtypes, kind, kind))
        mine = np.array([ctx.rank + 1, 4 * (1 - ctx.rank)]).astype(dtype)
        exact = dtype.kind in "iu"
        expected = {
            "sum": (ctx.allreduce(mine, average=False), np.array([3, 4]).astype(dtype)),
            "mean": (ctx.allreduce(mine), np.array([1.5, 2.0]).astype(np.float64 if exact else dtype)),
            "sent": (ctx.broadcast(mine), np.array([1, 4]).astype(dtype)),
            "rows": (ctx.allgather(mine[: ctx.rank + 1]), np.array([1, 2, 0]).astype(dtype)),
        }
        for name, (actual, wanted) in expected.items():
            assert actual.dtype == wanted.dtype, (kind, name, actual.dtype)
            np.testing.assert_array_equal(actual, wanted, err_msg=f"{kind} {name}")
    nested = ctx.allreduce({"b": [ctx.rank, 0.5 * ctx.rank], "a": (jnp.full(3, float(ctx.rank)), True)})
    assert (nested["b"], nested["a"][1]) == ([0.5, 0.25], 1.0), nested
    assert isinstance(nested["a"][0], jax.Array)
    assert ctx.allgather(ctx.rank).tolist() == [0, 1]
    assert isinstance(ctx.allgather(jnp.ones((1, 2))), jax.Array)
    many = ctx.allreduce(np.full(3_000_000, 1.0 + ctx.rank, "float32"))
    assert many.shape == (3_000_000,)
    assert (many == 1.5).all()
    return {"ranks": ctx.size}


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
