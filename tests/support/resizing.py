"""Loops that divide the rows of each step among the members of the moment, whatever their framework is."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.errors import RingError
from tests.support import drill

ROWS = 96
BATCH = 12
"""Rows of a step, of all members."""
STEPS = 40
AFTER = 10
"""Steps of a gang that is whole again."""
MOST = 1000
GO = "go"


def examples() -> tuple[Any, Any]:
    """Features and labels."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 6)).astype("float32"), rng.normal(size=(ROWS, 1)).astype("float32")


def rows_of(step: int) -> Any:
    """The rows of a step, of all members."""
    return np.arange(BATCH) + BATCH * ((step - 1) % (ROWS // BATCH))


class ResizedLoop:
    """The parts of such a loop that depend on its framework."""

    parts: tuple[Any, ...] = ()
    """What checkpoints hold."""
    train_step: Any
    """Trains on rows; before these it gets the `state`."""
    state: tuple[Any, ...] = ()
    """Of a loop with values, those that a step gets and returns."""

    def values(self) -> dict[str, Any]:
        """What the loop saves by name."""
        return {"state": list(self.state)} if self.state else {}

    def stepped(self, result: Any) -> None:
        """A step has returned its `result`."""
        if self.state:
            self.state = (result,)


class ResizedMember:
    """One member of such a loop. Make it once the process has its place."""

    def __init__(self, notes: Path, ctx: Any, kills: list[list[int]], lags: list[int]) -> None:
        """`kills` have the rank that a member had first, a step, and whether it dies in it (0) or after it (1). `lags`,
        a rank and a step: its collective fails there once, and has ended on the others."""
        self._notes = notes
        self._ctx = ctx
        self._kills = kills
        self._lags = lags
        self._rank: int = ctx.rank
        self.step = 0
        (notes / f"pid-{self._rank}-{os.getpid()}").touch()

    def rows(self) -> Any:
        """Those of this member in the present step."""
        return rows_of(self.step)[self._ctx.rank :: self._ctx.size]

    def note(self) -> None:
        """The step has ended here."""
        with (self._notes / f"steps-{self._rank}-{os.getpid()}.jsonl").open("a") as file:
            print(json.dumps([self.step, self._ctx.size, self.rows().tolist()]), file=file)

    def train(
        self, memory: Any, train_step: Callable[..., Any], step: int, sizes: list[int], loop: ResizedLoop
    ) -> None:
        """Make one step of the loop, and add to `sizes` how many members the gang has after it."""

        def call(*state: Any) -> Any:
            self.step = step  # a member that is a step ahead may repeat this one after the next one has started
            return train_step(*state)

        loop.stepped(memory.train(call, *loop.state))
        self.kill(1)
        sizes.append(self._ctx.size)
        memory.step(step, sizes=sizes, **loop.values())

    def kill(self, where: int) -> None:
        """End the agent of this member at its place, but not that of the next process of one that was lost."""
        is_first = len(list(self._notes.glob(f"pid-{self._rank}-*"))) == 1
        if [self._rank, self.step, where] in self._kills and is_first:
            os.kill(drill.pid_of("agent"), signal.SIGKILL)
            signal.pause()

    def lag(self) -> None:
        """Raise RingError at the place of a member that lags."""
        mark = self._notes / "lagged"
        if [self._rank, self.step] == self._lags and not mark.exists():
            mark.touch()
            raise RingError("the collective has ended on others, and has failed here")


def resize(
    made: Callable[..., Any],
    ctx: Any,
    folder: str,
    kills: list[list[int]],
    *,
    lags: Sequence[int] = (),
    step_s: float = 0.0,
    awaits_go: bool = False,
) -> dict[str, float]:
    """Train a loop, with the losses of `ResizedMember`. `made` makes its parts, of `ctx` and of what a step calls
    before it applies its gradients where a member lags.

    With `step_s`, the work of a step, the loop ends once the gang was smaller, and is whole again; with `awaits_go`
    once there is a file `GO`.
    """
    member: ResizedMember
    loop = made(ctx, (lambda: member.lag()) if lags else None)
    x, y = examples()
    restored = ctx.checkpoint.restore(*loop.parts)
    member = ResizedMember(Path(folder), ctx, kills, list(lags))

    def train_step(*state: Any) -> Any:
        rows = member.rows()
        member.kill(0)
        result = loop.train_step(*state, x[rows], y[rows])
        member.note()
        return result

    step = restored.step if restored else 0
    sizes: list[int] = restored["sizes"] if restored else []
    if restored and loop.state:
        loop.state = tuple(restored["state"])
    with ctx.memory_checkpoints(*loop.parts, every="0.2s", resizable=True) as memory:
        while step < (MOST if step_s else STEPS):
            if awaits_go and step % 5 == 0 and ctx.allreduce(float(Path(folder, GO).exists())):
                break
            step += 1
            member.train(memory, train_step, step, sizes, loop)
            if step_s:
                time.sleep(step_s)
                if is_whole_again(sizes):
                    break
    keep_weights(Path(folder), str(ctx.rank), loop.weights())
    return {"size": ctx.size, "steps": step}


def repeat(made: Callable[..., Any], folder: str, steps: int) -> None:
    """Train in one process on the rows of each step; keep the weights."""
    loop = made(None, None)
    x, y = examples()
    for step in range(1, steps + 1):
        loop.stepped(loop.train_step(*loop.state, x[rows_of(step)], y[rows_of(step)]))
    keep_weights(Path(folder), "alone", loop.weights())


def keep_weights(folder: Path, name: str, weights: Sequence[Any]) -> None:
    """Keep them for `check_weights`."""
    np.savez(folder / f"weights-{name}.npz", *weights)


def is_whole_again(sizes: list[int]) -> bool:
    """Whether the gang was smaller, and has had all its members for some steps."""
    return len(set(sizes[:-AFTER])) > 1 and set(sizes[-AFTER:]) == {sizes[0]}


def check_rows(folder: Path, sizes: set[int]) -> None:
    """Each step has each of its rows once, among members that agree on their number."""
    noted: dict[int, dict[int, dict[Path, list[int]]]] = {}
    for path in folder.glob("steps-*.jsonl"):
        for line in path.read_text().splitlines():
            step, size, rows = json.loads(line)
            # A member of PyTorch makes the first step in another ring twice, and undoes the first of these.
            noted.setdefault(step, {}).setdefault(size, {})[path] = rows
    assert {size for by_size in noted.values() for size in by_size} == sizes
    assert sorted(noted) == list(range(1, len(noted) + 1))
    for step, by_size in noted.items():
        # A step that was repeated with fewer members counts then.
        assert sorted(chain(*by_size[min(by_size)].values())) == sorted(rows_of(step)), step


def check_weights(folder: Path, ranks: list[int]) -> None:
    """Members have equal weights, and those of one process that trains all rows of each step."""
    weights = [np.load(folder / f"weights-{name}.npz") for name in (*ranks, "alone")]
    for name in weights[0].files:
        assert len({member[name].tobytes() for member in weights[:-1]}) == 1, "members have the same weights"
        np.testing.assert_allclose(weights[0][name], weights[-1][name], rtol=0, atol=1e-5)
