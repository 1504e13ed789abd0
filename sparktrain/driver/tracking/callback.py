"""What a callback on the driver gets, and when."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run that starts, or continues."""

    id: str
    """The same under every driver of the run, and of no other run: letters, digits, `-`, `_` and `.`."""
    name: str
    directory: str
    """The run directory: a path or a URL."""
    kind: str
    """`sweep` or `run`."""
    function: str
    metric: str | None
    mode: str
    started: float
    """When its first driver started, in seconds since 1970."""
    resumed: bool
    """An earlier driver has started the run: trials that ended under it are not repeated."""


@dataclass(frozen=True, kw_only=True)
class TrackedTrial:
    """A trial with a gang that starts, or starts again."""

    id: str
    """The id of the run, `-` and the trial's number."""
    number: int
    params: dict[str, Any]
    generation: int
    """Which start of its gang it is, from 1."""


@dataclass(frozen=True, kw_only=True)
class TrackedReport:
    """What the chief of a trial reported for one step. `(trial, generation, step)` identifies it."""

    generation: int
    step: int
    time: float
    """Seconds since 1970, by the clock of the chief's host."""
    metrics: dict[str, float]
    """Values, NaN and infinity among them."""


@dataclass(frozen=True, kw_only=True)
class TrackedEnd:
    """A trial with its final status."""

    id: str
    number: int
    params: dict[str, Any]
    generation: int
    """The newest start of its gang; 0 when it never ran."""
    status: str
    """`succeeded`, `failed`, `lost`, `pruned` or `stopped`."""
    metrics: dict[str, float]
    """What the training function returned."""
    seconds: float
    error: str
    """The root cause in a line; empty without one."""
    reports: int = 0
    """How many reports of it this driver has passed on: a callback that got fewer has missed some."""


@dataclass(frozen=True, kw_only=True)
class TrackedResult:
    """A run that is over for this driver."""

    run: TrackedRun
    status: str
    """The status of the result, or `error` where the call raised something else."""
    reason: str
    seconds: float
    best: int | None
    """The number of the best trial; None without one."""
    trials: tuple[TrackedEnd, ...] = field(default=(), repr=False)
    """All trials, those of earlier drivers too."""


class Callback:
    """Base of what learns about a run on the driver: `callbacks=[Mine()]`. Override what you need.

    One thread of the driver calls all methods of one object, in the order of events; reports of several trials that
    came between two other events arrive trial by trial. A method may block: training never waits for it. While it
    does, up to 100,000 reports wait; beyond that the oldest are dropped, with a warning. Other events are never
    dropped. An error of a method, SystemExit too, is logged once, with its traceback, and the run continues.

    Each report comes once under one driver; `(trial.number, report.generation, report.step)` is a key for those that
    need one under several.
    """

    gather_s: float = 0.0
    """How long reports are gathered, in seconds, before `reported` gets them together."""

    def run_started(self, run: TrackedRun) -> None:
        """The run starts, or continues: `run.resumed`."""

    def trial_started(self, trial: TrackedTrial) -> None:
        """The gang of a trial starts; once for each generation."""

    def reported(self, trial: TrackedTrial, reports: Sequence[TrackedReport]) -> None:
        """The chief of a trial has reported steps."""

    def trial_ended(self, trial: TrackedEnd) -> None:
        """A trial has its final status."""

    def run_ended(self, result: TrackedResult) -> None:
        """The run is over, and its files are stored."""

    def flush(self, timeout_s: float) -> None:
        """Send what still waits; called last. After `timeout_s` seconds the call returns to its user without it."""
