"""Loops of tests in rings that lose members: what they have in common, whatever their framework is."""

import importlib
import json
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.kills import Kills, hold

ROWS = 96
BATCH = 8
STEPS = 30
HOLDS = (5, 9)
"""Steps after which all members wait while a test kills one: in the first epoch, and in the second one."""
LATE_S = 0.5
"""When a report that is late arrives."""
RANKS: dict[str, Callable[[], int]] = {
    "environment": lambda: int(os.environ["RANK"]),
    "jax": lambda: int(importlib.import_module("jax").process_index()),
    "group": lambda: int(importlib.import_module("torch.distributed").get_rank()),
}
"""How a function may read its rank."""


def rows() -> tuple[Any, Any, Any]:
    """Features, labels, and the numbers of all rows."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(ROWS, 8)).astype("float32"), rng.integers(0, 3, ROWS), np.arange(ROWS)


class Loop(ABC):
    """The parts of a loop that depend on its framework. Each member makes one, before it knows its rank."""

    parts: tuple[Any, ...] = ()
    """What checkpoints hold; last the data, with the numbers of its rows in each batch."""
    train_step: Callable[[Any, Any], Any]
    """Trains on a batch; returns the loss."""
    died: Kills
    """The places at which this member dies; known once it trains."""
    undone = 0
    """Calls of the first step of a process that joins a ring which the others do not make."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()

    def called(self) -> None:
        """An eager step has computed its loss."""
        self._calls[self.died.step] += 1
        self.died.at("within")
        self.died.at(f"call {self._calls[self.died.step] - self.undone}")

    def has_gradients(self) -> None:
        """An eager step has its gradients, and applies them next."""
        self.died.at("applying")
        self.died.at("lag")

    def resume(self, ctx: Any, restored: Any) -> None:  # noqa: B027 - `parts` have the state of most
        """Continue from what `ctx.checkpoint.restore` has returned."""

    def batches(self, step: int, epoch: int) -> Iterable[Any]:
        """What is left of `epoch` after `step`."""
        return self.parts[-1]  # type: ignore[no-any-return]

    def train(self, memory: Any, x: Any, y: Any) -> Any:
        """Train one step; returns the loss."""
        return memory.train(self.train_step, x, y)

    def values(self) -> dict[str, Any]:
        """What the loop saves by name."""
        return {}

    def end_step(self) -> None:  # noqa: B027 - most have no schedule
        """A step has ended."""

    def check_place(self, ctx: Any) -> None:  # noqa: B027 - for a group that has ranks
        """The member has its rank."""

    @abstractmethod
    def spoil(self) -> None:
        """Change a bias a little."""

    @abstractmethod
    def variables(self) -> dict[str, Any]:
        """All state, as arrays by name."""

    def facts(self) -> dict[str, Any]:
        """What else a member notes at the end."""
        return {}


def train(
    made: Callable[[], Loop],
    ctx: Any,
    folder: str,
    kills: list[Any],
    *,
    every: str = "auto",
    holds: int = 0,
    reads: str = "",
    delays: bool = False,
) -> None:
    """Train over several epochs; note processes, rows, and how this member has ended.

    All members wait after the first `holds` of HOLDS. `reads`: how the function reads its rank before it restores;
    empty where it does not. With `delays` the report that a process has joined the ring of others arrives late.
    """
    if delays:
        _delay_reports(ctx._wire)
    notes = Path(folder)
    (notes / f"pid-{os.getpid()}").touch()
    loop = made()
    if reads:
        (notes / f"rank-{RANKS[reads]()}-{os.getpid()}").touch()
    restored = ctx.checkpoint.restore(*loop.parts)
    loop.check_place(ctx)
    died = loop.died = Kills(notes, ctx.rank, kills)
    loop.resume(ctx, restored)
    step = restored.step if restored else 0
    losses = restored["losses"] if restored else []
    means = restored["means"] if restored else []
    seen = (notes / f"rows-{ctx.rank}-{os.getpid()}.jsonl").open("a")
    with ctx.memory_checkpoints(*loop.parts, every=every) as memory:
        while step < STEPS:
            for x, y, numbers in loop.batches(step, len(means)):
                step += 1
                print(json.dumps([step, np.asarray(numbers).tolist()]), file=seen, flush=True)
                died.step = step
                died.at("before")
                died.at("together")
                died.at("later")
                if died.at("spoil"):
                    loop.spoil()
                losses.append(float(loop.train(memory, x, y)))
                loop.end_step()
                died.at("after")
                memory.step(step, losses=losses, means=means, **loop.values())
                died.at("end")
                if step in HOLDS[:holds]:
                    hold(notes, HOLDS.index(step), ctx.rank)
                if step == STEPS:
                    break
            means.append(ctx.allreduce(float(step * ctx.rank)))
    np.savez(notes / f"member-{ctx.rank}.npz", **loop.variables())
    facts = {"pid": os.getpid(), "losses": losses[-3:], "means": means, "step": step, **loop.facts()}
    (notes / f"facts-{ctx.rank}.json").write_text(json.dumps(facts))


def _delay_reports(wire: Any) -> None:
    """Send each report that this process has joined a ring `LATE_S` later."""

    stand = wire.stand

    def stand_later(**changes: int) -> None:
        threading.Timer(LATE_S if "ring" in changes else 0.0, stand, kwargs=changes).start()

    wire.stand = stand_later
