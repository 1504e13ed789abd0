"""Programs of gangs with a ring that carries arrays of a framework: what is the same for JAX and PyTorch."""

import os
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "uint16", "complex64")


class Arrays(ABC):
    """The arrays of a framework, and a collective of its own, without `ctx`."""

    array_type: type

    @abstractmethod
    def made(self, values: list[Any], kind: str) -> Any:
        """An array of these values: NumPy's where the framework lacks the kind."""

    @abstractmethod
    def own(self, values: list[float]) -> Any:
        """An array of `array_type` with these values, of float32."""

    @abstractmethod
    def total(self, value: float) -> float:
        """The sum of the members' values, as a program computes it that knows nothing of sparktrain."""

    def state(self, step: int) -> dict[str, Any]:
        """What a checkpoint of `step` has besides."""
        return {}

    def check_state(self, restored: Any) -> None:  # noqa: B027 - most have none
        """A checkpoint has it."""


def lose_a_member(arrays: Arrays, victim: int, how: str, ctx: Any) -> dict[str, float]:
    """Sum in each step, by the collective of a program or of `ctx`, and save each second step.

    Member `victim` of the first generation ends by a signal; the others resume.
    """
    restored = ctx.checkpoint.restore()
    start = 0 if restored is None else restored.step
    total = 0.0
    if restored is not None:
        total = float(restored["total"])
        arrays.check_state(restored)
    for step in range(start + 1, 21):
        if step == 8 and ctx.rank == victim and ctx.generation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "program":
            total += arrays.total(1.0)
        else:
            total += float(ctx.allreduce(arrays.own([1]), average=False)[0])
        ctx.report(step, total=total)
        if ctx.rank == 0 and step % 2 == 0:
            ctx.checkpoint.save(step, total=total, **arrays.state(step))
            ctx.checkpoint.wait()
    return {"total": total, "generation": ctx.generation, "from": start}


def raise_in_a_member(arrays: Arrays, ctx: Any) -> float:
    """Rank 1 has a mistake, and rank 0 waits for it in a collective."""
    arrays.total(1.0)
    if ctx.rank == 1:
        raise ValueError("rank 1 has no data")
    return arrays.total(1.0)


def call_others(arrays: Arrays, ctx: Any) -> None:
    """The members call different collectives."""
    if ctx.rank:
        ctx.broadcast(arrays.own([1, 1, 1]))
    else:
        ctx.allreduce(arrays.own([1, 1, 1, 1]))


def carry(arrays: Arrays, ctx: Any) -> dict[str, float]:
    """Each collective carries each kind of number."""
    for kind in KINDS:
        mine = arrays.made([ctx.rank + 1, 4 * (1 - ctx.rank)], kind)
        mean_kind = "float64" if "int" in kind else kind
        pairs = {
            "sum": (ctx.allreduce(mine, average=False), arrays.made([3, 4], kind)),
            "mean": (ctx.allreduce(mine), arrays.made([1.5, 2.0], mean_kind)),
            "sent": (ctx.broadcast(mine), arrays.made([1, 4], kind)),
            "rows": (ctx.allgather(mine[: ctx.rank + 1]), arrays.made([1, 2, 0], kind)),
        }
        for name, (actual, expected) in pairs.items():
            assert actual.dtype == expected.dtype, (kind, name, actual.dtype)
            assert actual.tolist() == expected.tolist(), (kind, name)
    # Odd counts of real numbers beside complex ones, which travel as two real ones each.
    nested = {"b": [arrays.own([0.5] * 3), arrays.made([2j], "complex64")], "a": (np.full(3, ctx.rank), True)}
    mean = ctx.allreduce(nested)
    assert (mean["b"][0].tolist(), mean["b"][1].tolist(), mean["a"][1]) == ([0.5] * 3, [2j], 1.0), mean
    assert isinstance(mean["b"][0], arrays.array_type)
    assert type(mean["a"][0]) is np.ndarray
    assert mean["a"][0].tolist() == [0.5] * 3
    assert ctx.allreduce({"b": [ctx.rank, 0.5 * ctx.rank]}) == {"b": [0.5, 0.25]}
    assert ctx.allgather(ctx.rank).tolist() == [0, 1]
    assert isinstance(ctx.allgather(arrays.own([1, 1])), arrays.array_type)
    assert ctx.broadcast({"x": [ctx.rank, arrays.own([])]})["x"][0] == 0
    many = ctx.allreduce(np.full(3_000_000, 1.0 + ctx.rank, "float32"))
    assert many.shape == (3_000_000,)
    assert (many == 1.5).all()
    return {"ranks": ctx.size}


def stop_together(arrays: Arrays, folder: str, ctx: Any) -> dict[str, float]:
    """Rank 0 reports a growing loss; each member notes the step after which it sees that it should stop."""
    with ctx.memory_checkpoints() as memory:
        for step in range(1, 10_000):
            ctx.allreduce(arrays.own([1]))
            if ctx.rank == 0:
                ctx.report(step, loss=float(step))
            memory.step(step)
            if ctx.should_stop():
                break
            time.sleep(0.03)  # the work of a step: rules judge the reports of longer ones
    Path(folder, f"stopped-{ctx.rank}").write_text(str(step))
    return {"loss": float(step)}
