"""Spaces: the sets of hyperparameters that a sweep tries, as lists of values.

    grid(lr=[0.1, 0.01], dropout=[0.4, 0.7])      every combination: 4
    zipped(lr=[0.1, 0.01], dropout=[0.4, 0.7])    position by position: 2
    cases([{"lr": 0.1}, {"lr": 0.01}])            as listed: 2

A space is immutable, and iterating over it gives the same dicts in the same order each time; treat them as read-only.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, cast

from sparktrain.base.boundary import is_interrupt, message_of, users_call
from sparktrain.config.distribution import Distribution
from sparktrain.config.param_values import check_equal_lengths, check_name, described, plain, shown, value_list
from sparktrain.errors import SpecError

Params = dict[str, Any]
Predicate = Callable[[Params], object]

MAX_REFUSED = 1_000_000
"""How many combinations in a row `where=` may refuse; a space that refuses more counts as a mistake."""


class Space(ABC):
    """Hyperparameters to try. Cases are made lazily, which raises SpecError where a predicate of the user raises."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Every parameter that occurs, in order of declaration."""

    @abstractmethod
    def examples(self) -> Iterator[Params]:
        """Cases with every set of names that occurs, to check the training function with. It ends."""

    @abstractmethod
    def __str__(self) -> str:
        """The space in a few words, for messages."""


class ListedSpace(Space):
    """A space that lists its cases."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Upper limit of the number of combinations; exact unless conditions leave some out."""

    @abstractmethod
    def __iter__(self) -> Iterator[Params]:
        """The combinations, in their order."""

    def examples(self) -> Iterator[Params]:
        """See base class. All combinations."""
        return iter(self)


class Absent(Enum):
    """Type of `ABSENT`."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
"""In place of a value: the parameter is not passed, so that the function's default applies."""


@dataclass(frozen=True)
class When:
    """A conditional list of values, or distribution; made by `when`."""

    predicate: Predicate
    values: tuple[Any, ...] | Distribution
    otherwise: Any

    @property
    def listed(self) -> tuple[Any, ...]:
        """The values of a list. Raises SpecError for a distribution."""
        if isinstance(self.values, Distribution):
            raise SpecError(f"when(): a grid lists values, {self.values} is sampled: use space(), or a list of values")
        return self.values


@users_call
def when(predicate: Predicate, values: object, otherwise: object = ABSENT) -> When:
    """Values that are tried only where `predicate(params)` is true of the parameters named before.

    They are a list for a grid, or a distribution for a space that is sampled, where a list is a choice. Elsewhere the
    parameter is `otherwise`, or is not passed at all, so that the function's default applies.

    >>> list(grid(optimizer=["sgd", "adam"], momentum=when(lambda p: p["optimizer"] == "sgd", [0.5, 0.9])))
    [{'optimizer': 'sgd', 'momentum': 0.5}, {'optimizer': 'sgd', 'momentum': 0.9}, {'optimizer': 'adam'}]
    """
    if not callable(predicate):
        raise SpecError(
            f"when(): the condition {described(predicate)} is not a function; "
            "pass a function of the parameters so far, such as lambda p: p['optimizer'] == 'sgd'"
        )
    fallback = ABSENT if otherwise is ABSENT else plain(otherwise, "when(otherwise=...)")
    listed = values if isinstance(values, Distribution) else value_list(values, "when(): the list of values")
    return When(predicate, listed, fallback)


@users_call
def grid(values: Mapping[str, object] | None = None, /, *, where: Predicate | None = None, **named: object) -> "Grid":
    """Every combination of the values, the last name varying fastest, without those where `where(params)` is false.

    Takes names as keywords, or a mapping, which can also hold the name "where". Raises SpecError.

    >>> list(grid(lr=[0.1, 0.01], layers=[1, 2], where=lambda p: p["lr"] < 0.1 or p["layers"] == 1))
    [{'lr': 0.1, 'layers': 1}, {'lr': 0.01, 'layers': 1}, {'lr': 0.01, 'layers': 2}]
    """
    check_predicate(where, "grid")
    axes = named_values("grid", values, named)
    space = Grid(tuple((name, _axis(name, axis)) for name, axis in axes.items()), where)
    next(iter(space))  # raises at the line that wrote the space when nothing is left of it
    return space


@users_call
def zipped(values: Mapping[str, object] | None = None, /, **named: object) -> "Zipped":
    """The lists taken position by position: first values together, then second ones. Lengths must be equal.

    >>> list(zipped(lr=[0.1, 0.01], dropout=[0.4, 0.7]))
    [{'lr': 0.1, 'dropout': 0.4}, {'lr': 0.01, 'dropout': 0.7}]
    """
    columns = {}
    for name, column in named_values("zipped", values, named).items():
        if isinstance(column, When):
            raise SpecError(f"zipped(): {name!r} is a when(...), conditions belong in a grid; use grid() or cases()")
        columns[name] = value_list(column, f"zipped(): {name!r}")
    check_equal_lengths(columns, "zipped()")
    return Zipped(tuple(columns), tuple(zip(*columns.values(), strict=True)))


@users_call
def cases(rows: Sequence[Mapping[str, object]]) -> "Cases":
    """The combinations as listed; a name that one leaves out takes the function's default there.

    >>> list(cases([{"lr": 0.1, "momentum": 0.9}, {"lr": 0.01}]))
    [{'lr': 0.1, 'momentum': 0.9}, {'lr': 0.01}]
    """
    if not isinstance(cast(object, rows), Sequence) or isinstance(cast(object, rows), str | bytes):
        raise SpecError(
            f"cases() is given {described(rows)}, a list of dicts is expected; "
            "write cases([{'lr': 0.1}, {'lr': 0.01}]), for a pandas table cases(table.to_dict('records'))"
        )
    if not rows:
        raise SpecError("cases() is given an empty list, at least one case is needed; write cases([{'lr': 0.1}])")
    return Cases(tuple(_case(row, f"cases()[{index}]") for index, row in enumerate(rows)))


def single(params: Mapping[str, object]) -> "Cases":
    """The one combination of a run that is not a search.

    >>> list(single({"lr": 0.1}))
    [{'lr': 0.1}]
    """
    return Cases((_case(params, "params"),))


@dataclass(frozen=True)
class Grid(ListedSpace):
    """Every combination; made by `grid`."""

    axes: tuple[tuple[str, tuple[Any, ...] | When], ...]
    where: Predicate | None = None
    max_refused: int = MAX_REFUSED

    @property
    def names(self) -> tuple[str, ...]:
        """See base class."""
        return tuple(name for name, _ in self.axes)

    @property
    def size(self) -> int:
        """See base class. Counts what `where` refuses, and conditional values as if always tried."""
        return math.prod(_length(axis) for _, axis in self.axes)

    def __str__(self) -> str:
        """See base class."""
        return "grid of " + " x ".join(f"{_length(axis)} {name}" for name, axis in self.axes)

    def __iter__(self) -> Iterator[Params]:
        """See base class. The last name varies fastest."""
        accepted = refused = 0
        for params in self._extend({}, 0):
            if self.where is None or holds(self.where, params, "grid(where=...)"):
                accepted = accepted + 1
                refused = 0
                yield params
                continue
            refused += 1
            if refused > self.max_refused:
                raise SpecError(
                    f"grid(where=...) refused {self.max_refused:,} combinations in a row, up to {shown(params)}; "
                    "narrow the lists, or list the combinations with cases()"
                )
        if not accepted:
            raise SpecError(
                f"grid(where=...) refuses all {refused:,} combinations, at least one must be left; "
                f"the last was {shown(params)}: correct the condition"
            )

    def _extend(self, params: Params, depth: int) -> Iterator[Params]:
        if depth == len(self.axes):
            yield params
            return
        name, axis = self.axes[depth]
        for value in _values(name, axis, params):
            yield from self._extend(params if value is ABSENT else params | {name: value}, depth + 1)


@dataclass(frozen=True)
class Zipped(ListedSpace):
    """Lists taken position by position; made by `zipped`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """See base class."""
        return self.columns

    @property
    def size(self) -> int:
        """See base class."""
        return len(self.rows)

    def __str__(self) -> str:
        """See base class."""
        return f"zip of {', '.join(self.columns)}"

    def __iter__(self) -> Iterator[Params]:
        """See base class. From the first position to the last."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)


@dataclass(frozen=True)
class Cases(ListedSpace):
    """Explicit combinations; made by `cases`."""

    rows: tuple[Params, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """See base class."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.rows)))

    @property
    def size(self) -> int:
        """See base class."""
        return len(self.rows)

    def __str__(self) -> str:
        """See base class."""
        return "list of 1 case" if len(self.rows) == 1 else f"list of {len(self.rows)} cases"

    def __iter__(self) -> Iterator[Params]:
        """See base class. As listed."""
        return (dict(row) for row in self.rows)


def check_predicate(where: object, kind: str) -> None:
    """Raises SpecError unless `where` is None or a function."""
    if where is not None and not callable(where):
        raise SpecError(
            f"{kind}(where=...): {described(where)} is not a function; pass a function of the parameters, "
            f"or, for a parameter called 'where', {kind}({{'where': [...]}})"
        )


def named_values(kind: str, values: object, named: Mapping[str, object]) -> dict[str, object]:
    """The parameters of a call of `kind` by name, from its mapping and its keywords. Raises SpecError."""
    if values is not None and not isinstance(values, Mapping):
        raise SpecError(
            f"{kind}() is given {described(values)}, a dict of lists is expected; "
            f"write {kind}(lr=[0.1, 0.01]) or {kind}({{'lr': [0.1, 0.01]}})"
        )
    columns = dict(cast(Mapping[str, object], values or {}))
    twice = sorted(columns.keys() & named.keys())
    if twice:
        raise SpecError(f"{kind}(): {twice[0]!r} is given twice, in the dict and by keyword; remove one")
    columns.update(named)
    if not columns:
        raise SpecError(f"{kind}() is empty, at least one parameter is needed; write {kind}(lr=[0.1, 0.01])")
    return {check_name(name, f"{kind}()"): column for name, column in columns.items()}


def _axis(name: str, values: object) -> tuple[Any, ...] | When:
    if isinstance(values, Distribution):
        raise SpecError(f"grid(): {name!r} is {values}, a grid lists values; use space({name}=...), or list some")
    if isinstance(values, When):
        return replace(values, values=values.listed)
    return value_list(values, f"grid(): {name!r}")


def _case(row: object, subject: str) -> Params:
    if not isinstance(row, Mapping):
        raise SpecError(
            f"{subject} is {described(row)}, a dict is expected; "
            "write {'lr': 0.1}; lists of values are for a sweep with grid() or zipped()"
        )
    return {check_name(name, subject): plain(value, f"{subject}: {name!r}") for name, value in row.items()}


def _length(axis: tuple[Any, ...] | When) -> int:
    return len(axis.listed if isinstance(axis, When) else axis)


def _values(name: str, axis: tuple[Any, ...] | When, params: Params) -> tuple[Any, ...]:
    if not isinstance(axis, When):
        return axis
    return axis.listed if holds(axis.predicate, params, f"grid(): the condition of {name!r}") else (axis.otherwise,)


def holds(predicate: Predicate, params: Params, subject: str) -> bool:
    """Whether a condition of the user holds. Raises SpecError when it raises."""
    try:
        # A copy: a condition that writes into its argument changes nothing of what is tried.
        return bool(predicate(dict(params)))
    except BaseException as error:  # a condition may call sys.exit(), which would end the driver's thread
        if is_interrupt(error):
            raise
        reason = shown(" ".join(message_of(error).split()))[1:-1]
        names = ", ".join(map(repr, params)) or "none yet"
        step = f"it sees the names before it: {names}; use p.get(...)" if isinstance(error, KeyError) else "correct it"
        raise SpecError(
            f"{subject} raised {type(error).__name__}: {reason} for {shown(params, 200)}; a condition is called with "
            f"one dict of parameters, and returns true or false: {step}"
        ) from error
