"""The runs of a directory: what each of them is, as far as it can be read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparktrain.clock import Clock
from sparktrain.errors import SpecError, UserError
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunView
from sparktrain.runs.watcher import Observer
from sparktrain.store.base import Usage
from sparktrain.store.parallel import spread

READERS = 8
"""How many runs are read concurrently: asking a driver that does not answer takes two seconds."""


class RunOrder(StrEnum):
    """How runs are sorted. The value is the word on the command line."""

    STARTED = "started"  # the newest first
    NAME = "name"
    BEST = "best"  # by the value of each run's own metric: see `sorted_runs`
    SIZE = "size"  # the largest first


@dataclass(frozen=True)
class ListedRun:
    """One of several runs."""

    view: RunView
    usage: Usage | None
    """What its directory uses; None where that was not asked for."""

    @property
    def state(self) -> str:
        """How it ended, `running`, or `driver gone`."""
        return str(self.view.status or ("running" if self.view.state == "running" else "driver gone"))

    @property
    def value(self) -> float | None:
        """The value of the best trial so far."""
        best = self.view.leader
        metric = self.view.spec.metric
        return None if best is None or metric is None else best.metrics[metric]


@dataclass(frozen=True)
class UnreadableRun:
    """A folder with a run that cannot be read."""

    name: str
    problem: str


def list_runs(
    places: Sequence[RunLocation], clock: Clock, *, sizes: bool = False
) -> tuple[list[ListedRun], list[UnreadableRun]]:
    """The runs at `places`, in this order; one that cannot be read hides no other. Blocks on the stores.

    `sizes` adds what each run uses, which lists all its files. Raises OSError when a store fails.
    """
    listings = spread(lambda place, _: _look(place, clock, sizes), places, READERS)
    runs = [run for run in listings if isinstance(run, ListedRun)]
    return runs, [run for run in listings if isinstance(run, UnreadableRun)]


def _look(place: RunLocation, clock: Clock, sizes: bool) -> ListedRun | UnreadableRun:
    try:
        view = Observer(place, clock).look()
    except UserError as error:
        return UnreadableRun(place.layout.path, str(error))
    return ListedRun(view, place.store.usage(place.layout.path) if sizes else None)


def sorted_runs(runs: Sequence[ListedRun], order: str) -> list[ListedRun]:
    """The runs in this order, and by name where it leaves them equal.

    For `best`, runs of one metric and mode are together, the best of them first, and those without a value are last.
    Raises SpecError for an unknown order.
    """
    keys: dict[str, Callable[[ListedRun], tuple[object, ...]]] = {
        RunOrder.STARTED: lambda run: (-(run.view.times.started or 0.0),),
        RunOrder.NAME: lambda run: (),
        RunOrder.BEST: _by_best,
        RunOrder.SIZE: lambda run: (-(run.usage.size if run.usage else 0),),
    }
    if order not in keys:
        raise SpecError(f"--sort ({order}) must be one of {', '.join(RunOrder)}")
    return sorted(runs, key=lambda run: (*keys[order](run), run.view.name))


def _by_best(run: ListedRun) -> tuple[object, ...]:
    value = run.value
    view = run.view
    if value is None:
        return (True, "", "", 0.0)
    return (False, view.spec.metric, view.spec.mode, -value if view.spec.mode == "max" else value)
