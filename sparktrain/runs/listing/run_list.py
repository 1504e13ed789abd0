"""The runs of a directory: what each of them is, as far as it can be read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparktrain.base.clock import Clock
from sparktrain.errors import SpecError, StoreError, StoreRefusedError, UserError
from sparktrain.runs.listing.ended_row import ended_row, partial_row
from sparktrain.runs.listing.run_row import RunLabel, RunRow, row_of
from sparktrain.runs.listing.run_states import UNREADABLE
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

    row: RunRow
    usage: Usage | None = None
    """What its directory uses; None where that was not asked for."""
    view: RunView | None = None
    """The whole run; None where that was not asked for, or cannot be read."""


@dataclass(frozen=True)
class RowReading:
    """A run that was read, and what follows it if it has not ended."""

    row: RunRow
    observer: Observer | None = None
    """Reads what is new; None where a few small files were enough."""
    view: RunView | None = None


def read_row(place: RunLocation, clock: Clock, *, whole: bool = False) -> RowReading:
    """The row of the run at `place`: the one function that makes it, for the command line and for pages. Blocks.

    A run that its only driver has ended is read from its `run.json`, plan and `results.json`, any other one from its
    journal; so is each run with `whole`, which sets the view. One that cannot be read has a row with what can be,
    and the problem. Raises StoreError when the store fails, and FileNotFoundError where the run was deleted meanwhile.
    """
    try:
        if not whole and (row := ended_row(place, place.store.entries(place.layout.journal.path))) is not None:
            return RowReading(row)
        observer = Observer(place, clock)
        return reading_of(place, observer)
    except StoreRefusedError as error:
        problem = str(error)
    except StoreError:
        raise
    except PermissionError as error:
        problem = f"{place.where} cannot be read: {error.strerror or error}; ask its owner"
    except (UserError, FileNotFoundError) as error:
        problem = str(error)
        if not place.has_run:
            if not place.store.entries(place.layout.journal.path):
                raise FileNotFoundError(f"{place.where} was deleted") from error
            problem = f"{place.where} has lost its run.json: put a copy back, or see `sparktrain fsck`"
    return RowReading(unreadable_row(place, problem))


def unreadable_row(place: RunLocation, problem: str) -> RunRow:
    """The row of a run that cannot be read, with what its `run.json` has, as far as that can be read. Blocks."""
    try:
        return partial_row(place, problem)
    except OSError:
        label = RunLabel(name=place.layout.path, directory=place.where)
        return RunRow(id=place.layout.path, state=UNREADABLE, label=label, problem=problem)


def reading_of(place: RunLocation, observer: Observer) -> RowReading:
    """The row of a run that `observer` follows, as it is now. Blocks; raises as `Observer.look`."""
    view = observer.look()
    return RowReading(row_of(place.layout.path, view, observer.plan, observer.records), observer, view)


def list_runs(
    places: Sequence[RunLocation], clock: Clock, *, sizes: bool = False, views: bool = False
) -> list[ListedRun]:
    """The runs at `places`, in this order; one that cannot be read hides no other. Blocks on the stores.

    `sizes` adds what each run uses, which lists all its files; `views` adds all of each run, which reads its journal.
    Raises OSError when a store fails.
    """

    def listed(place: RunLocation) -> ListedRun:
        reading = read_row(place, clock, whole=views)
        usage = place.store.usage(place.layout.path) if sizes and reading.row.readable else None
        return ListedRun(reading.row, usage, reading.view if views else None)

    return spread(lambda place, _: listed(place), places, READERS)


def sorted_runs(runs: Sequence[ListedRun], order: str) -> list[ListedRun]:
    """The runs in this order, and by name where it leaves them equal.

    For `best`, runs of one metric and mode are together, the best of them first, and those without a value are last.
    Raises SpecError for an unknown order.
    """
    keys: dict[str, Callable[[ListedRun], tuple[object, ...]]] = {
        RunOrder.STARTED: lambda run: (-(run.row.clock.started or 0.0),),
        RunOrder.NAME: lambda run: (),
        RunOrder.BEST: lambda run: _by_best(run.row),
        RunOrder.SIZE: lambda run: (-(run.usage.size if run.usage else 0),),
    }
    if order not in keys:
        raise SpecError(f"--sort ({order}) must be one of {', '.join(RunOrder)}")
    return sorted(runs, key=lambda run: (*keys[order](run), run.row.label.name))


def _by_best(row: RunRow) -> tuple[object, ...]:
    value = row.value
    if value is None:
        return (True, "", "", 0.0)
    return (False, row.label.metric, row.label.mode, -value if row.label.mode == "max" else value)
