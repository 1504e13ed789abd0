"""The loops of `tests.support.loops` and `tests.support.resizing` for JAX: their state is values."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.support import loops, resizing

RATE = 0.1
MOMENTUM = 0.9


def logits_of(weights: Any, key: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ weights["first"])
    kept = jax.random.bernoulli(key, 0.8, hidden.shape[1:])
    return (hidden * kept) @ weights["second"] + weights["bias"]


def loss_of(weights: Any, key: Any, x: Any, y: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits_of(weights, key, x)), y[:, None], 1)
    return -chosen.mean()


@jax.jit
def applied(state: Any, gradients: Any) -> Any:
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, state["velocity"], gradients)
    weights = jax.tree.map(lambda w, v: w - RATE * v, state["weights"], velocity)
    return {"weights": weights, "velocity": velocity}


@jax.jit
def gradients_of(state: Any, key: Any, x: Any, y: Any) -> Any:
    return jax.value_and_grad(loss_of)(state["weights"], key, x, y)


def trained(state: Any, key: Any, x: Any, y: Any) -> Any:
    loss, gradients = gradients_of(state, key, x, y)
    return applied(state, gradients), loss


@jax.jit
def fitted(state: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights["first"]) @ weights["second"] + weights["bias"] - y) ** 2)

    return applied(state, jax.grad(loss)(state["weights"]))


donating = jax.jit(trained, donate_argnums=0)


@cache
def mapped(mesh: Mesh) -> Any:
    """A step in which each member averages by itself."""
    spec: Any = PartitionSpec

    def averaged(state: Any, key: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.lax.pmean(gradients_of(state, key, x, y), "rows")
        return applied(state, gradients), loss

    specs = (spec(), spec(), spec("rows"), spec("rows"))
    return jax.jit(jax.shard_map(averaged, mesh=mesh, in_specs=specs, out_specs=spec(), check_vma=False))


def over_all(*rows: Any) -> tuple[Mesh, list[Any]]:
    """The mesh of the members of the moment, and arrays with their rows."""
    spec: Any = PartitionSpec
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    split = NamedSharding(mesh, spec("rows"))
    return mesh, [jax.make_array_from_process_local_data(split, mine) for mine in rows]


def first_state(features: int, outputs: int) -> Any:
    first, second = jax.random.split(jax.random.key(5))
    shapes = {"first": (first, (features, 16)), "second": (second, (16, outputs))}
    weights = {name: jax.random.normal(key, shape) / 4 for name, (key, shape) in shapes.items()}
    weights["bias"] = jnp.zeros(outputs)
    return {"weights": weights, "velocity": jax.tree.map(jnp.zeros_like, weights)}


class JaxLoop(loops.Loop):
    """Weights, momentum and dropout. XLA averages over the rows of all ("tape"), the step of each member averages
    ("optimizer"), or the ring of `ctx` does ("eager"). A loop that "donates" cannot repeat a step; before one that is
    "early" all members have run a program."""

    def __init__(self, ctx: Any, way: str) -> None:
        super().__init__()
        self._ctx = ctx
        self._way = way
        self._state = first_state(8, 3)
        if way == "early":
            multihost_utils.sync_global_devices("start")  # type: ignore[no-untyped-call]

    def resume(self, ctx: Any, restored: Any) -> None:
        """See base class."""
        if restored is not None:
            self._state = restored["state"]

    def batches(self, step: int, epoch: int) -> Iterator[Any]:
        """See base class."""
        order = np.random.default_rng(epoch).permutation(loops.ROWS)
        count = loops.ROWS // loops.BATCH // self._ctx.size
        for number in range(step - epoch * count, count):
            rows = order[number * self._ctx.size * loops.BATCH :][self._ctx.rank :: self._ctx.size][: loops.BATCH]
            yield [column[rows] for column in loops.rows()]

    def train(self, memory: Any, x: Any, y: Any) -> Any:
        """See base class."""
        key = jax.random.fold_in(jax.random.key(3), self.died.step)
        self._state, loss = memory.train(self.step, self._state, key, x, y)
        return loss

    def step(self, state: Any, key: Any, x: Any, y: Any) -> Any:
        """One step, with the rows of this member."""
        if self._way == "eager":
            loss, gradients = gradients_of(state, key, x, y)
            self.called()
            gradients, loss = self._ctx.allreduce((gradients, loss))
            self.has_gradients()
            return applied(state, gradients), loss
        mesh, rows = over_all(x, y)
        step = {"optimizer": mapped(mesh), "donates": donating}.get(self._way, trained)
        return step(state, key, *rows)

    def values(self) -> dict[str, Any]:
        """See base class."""
        return {"state": self._state}

    def spoil(self) -> None:
        """See base class."""
        weights = self._state["weights"]
        spoiled = np.asarray(weights["bias"]) + np.float32(1e-6)
        self._state = {**self._state, "weights": {**weights, "bias": spoiled}}

    def variables(self) -> dict[str, Any]:
        """See base class."""
        leaves, _ = jax.tree.flatten_with_path(self._state)
        return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


class JaxResizing(resizing.ResizedLoop):
    """See `tests.support.resizing.resize`."""

    def __init__(self, ctx: Any, lag: Any) -> None:
        self.state = (first_state(6, 1),)

    def train_step(self, state: Any, x: Any, y: Any) -> Any:
        """See base class."""
        _, rows = over_all(x, y)
        return fitted(state, *rows)

    def weights(self) -> list[Any]:
        """Those of the model."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]


def train(way: str, ctx: Any, **options: Any) -> None:
    """See `loops.train`."""
    loops.train(lambda: JaxLoop(ctx, way), ctx, **options)


def resize(ctx: Any, **options: Any) -> dict[str, float]:
    """See `resizing.resize`."""
    return resizing.resize(JaxResizing, ctx, **options)


def repeat(**options: Any) -> None:
    """See `resizing.repeat`."""
    resizing.repeat(JaxResizing, **options)
