"""Spaces with distributions: a sampler proposes their cases.

    space(lr=loguniform(1e-5, 1e-1), units=[64, 256], epochs=10, optimizer={"name": choice(["sgd", "adam"])})

A distribution is sampled, a list is an axis of a grid (trial n takes its combination n, in a circle), a dict holds more
of these, and anything else is a constant. A space is immutable. `as_space` takes whatever a call gives.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from sparktrain.base.boundary import users_call
from sparktrain.config.distribution import Distribution, choice, drawn
from sparktrain.config.param_values import described, plain, shown, value_at, value_list
from sparktrain.config.stoppers import PBT, AnyStopRule
from sparktrain.errors import SpecError
from sparktrain.search.space import (
    ABSENT,
    Grid,
    Params,
    Predicate,
    Space,
    When,
    cases,
    check_predicate,
    grid,
    holds,
    named_values,
    zipped,
)

if TYPE_CHECKING:
    from sparktrain.config.param_files.load import ParamsFile  # it reads YAML, which few calls need

MAX_REFUSED = 10_000
"""How many draws in a row `where=` may refuse."""
_EXAMPLES = 200
_WHERE = "space(where=...)"

Pick = Callable[[str, "Leaf"], Any]
"""Chooses the value of the leaf at a path, such as "optimizer.lr"."""


@dataclass(frozen=True)
class ConstantValue:
    """A parameter that is the same in all cases."""

    value: Any


@dataclass(frozen=True)
class NestedValues:
    """A dict of nodes, which is one parameter of the function, or lies within one."""

    entries: tuple[tuple[str, Any], ...]


Leaf = Distribution | tuple[Any, ...]
"""What a value is chosen from: a distribution, or the list of an axis."""
Leaves = tuple[tuple[str, Leaf], ...]
Node = Leaf | ConstantValue | NestedValues | When


@dataclass(frozen=True)
class SampledSpace(Space):
    """Parameters with distributions; made by `space`, or from a dict that has one."""

    nodes: NestedValues
    where: Predicate | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """See base class."""
        return tuple(name for name, _ in self.nodes.entries)

    @cached_property
    def leaves(self) -> dict[str, Leaf]:
        """All lists and distributions by their paths; do not change it."""
        return {path: leaf for path, leaf, _ in _leaves(self.nodes)}

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The lists by their paths: axes of a grid."""
        return {path: leaf for path, leaf in self.leaves.items() if isinstance(leaf, tuple)}

    @property
    def distributions(self) -> dict[str, Distribution]:
        """All distributions by their paths."""
        return {path: leaf for path, leaf in self.leaves.items() if isinstance(leaf, Distribution)}

    @property
    def conditional(self) -> tuple[str, ...]:
        """Paths of the distributions that not every case has."""
        return tuple(path for path, _, under in _leaves(self.nodes) if under)

    @property
    def has_code(self) -> bool:
        """Whether it has conditions, which are functions, and are in no document."""
        return self.where is not None or bool(self.conditional)

    @property
    def count(self) -> int | None:
        """Upper limit of the number of different cases; None where a distribution is not counted."""
        sizes = [leaf.size if isinstance(leaf, Distribution) else len(leaf) for leaf in self.leaves.values()]
        return None if None in sizes else math.prod(cast(list[int], sizes))

    def __str__(self) -> str:
        """See base class."""
        text = ", ".join(f"{name} {_text(node)}" for name, node in self.nodes.entries)
        return f"{text}, where a condition holds" if self.where is not None else text

    def built(self, pick: Pick) -> Params:
        """The case for which `pick` chooses each value. Raises SpecError where a condition of the user raises."""
        return _built(self.nodes, pick, {}, ())

    def accepts(self, params: Params) -> bool:
        """Whether `where=` holds. Raises SpecError when it raises."""
        return self.where is None or holds(self.where, params, _WHERE)

    def draw(self, source: random.Random, fixed: Mapping[str, Any] | None = None) -> Params | None:
        """A case at random, with the values of axes in `fixed`; None where `where=` refuses it."""
        fixed_values = fixed or {}
        params = self.built(lambda path, leaf: fixed_values[path] if path in fixed_values else drawn(leaf, source))
        return params if self.accepts(params) else None

    def chosen(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The value of each leaf in this case, by path; None when it is no case of this space."""
        leaf_values: dict[str, Any] = {}

        def pick(path: str, leaf: Leaf) -> Any:
            leaf_values[path] = value_at(params, path)
            return leaf_values[path]

        try:
            again = self.built(pick)
        except (KeyError, TypeError, SpecError):
            return None
        return leaf_values if again == params else None

    def examples(self) -> Iterator[Params]:
        """See base class. Draws, always the same ones."""
        source = random.Random(0)
        drawn = (self.draw(source) for _ in range(MAX_REFUSED))
        cases = list(itertools.islice((case for case in drawn if case is not None), _EXAMPLES))
        if not cases:
            raise SpecError(f"{_WHERE} refuses {MAX_REFUSED:,} draws of {self} in a row: correct the condition")
        return iter(cases)


@users_call
def space(values: Mapping[str, object] | None = None, /, *, where: Predicate | None = None, **named: object) -> Space:
    """Distributions, lists, constants and dicts of these by name, without cases where `where(params)` is false.

    Takes names as keywords, or a mapping, which can also hold the name "where". Without any distribution it is a grid.
    Raises SpecError.

    >>> from sparktrain import loguniform
    >>> print(space(lr=loguniform(1e-4, 1e-1), units=[64, 256], epochs=10))
    lr ~ loguniform(0.0001, 0.1), units in a grid of [64, 256], epochs = 10
    """
    check_predicate(where, "space")
    entries = named_values("space", values, named)
    if not has_distribution(entries):
        return grid(entries, where=where)
    sampled = SampledSpace(NestedValues(tuple((name, _node(name, value)) for name, value in entries.items())), where)
    paths = [path for path, _, _ in _leaves(sampled.nodes)]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise SpecError(f"space(): two parameters are called {twice!r}, one by a dot in its key; rename one of them")
    next(sampled.examples())  # raises at the line that wrote the space where a condition does, or nothing is left
    return sampled


def has_distribution(value: object) -> bool:
    """Whether a distribution lies somewhere in `value`."""
    if isinstance(value, Mapping):
        return any(map(has_distribution, value.values()))
    return isinstance(value.values if isinstance(value, When) else value, Distribution)


def as_choices(listed: Grid) -> SampledSpace:
    """A grid for samplers that choose: each list is a choice."""
    nodes = tuple((name, _as_choice(axis)) for name, axis in listed.axes)
    return SampledSpace(NestedValues(nodes), listed.where)


def as_grid(sampled: SampledSpace) -> Grid:
    """A space with counted values alone as a grid. Raises SpecError for another one."""
    return Grid(tuple((name, _listed(name, node)) for name, node in sampled.nodes.entries), sampled.where)


def _as_choice(axis: tuple[Any, ...] | When) -> Distribution | When:
    return replace(axis, values=_choice_of(axis.listed)) if isinstance(axis, When) else _choice_of(axis)


def _choice_of(values: tuple[Any, ...]) -> Distribution:
    return choice(list({repr(value): value for value in values}.values()))


def _listed(name: str, node: Node) -> tuple[Any, ...] | When:
    match node:
        case ConstantValue(value=value):
            return (value,)
        case When(values=Distribution() as distribution):
            if (values := distribution.values) is not None:
                return replace(node, values=values)
        case Distribution() if node.values is not None:
            return node.values
        case tuple() | When():
            return node
    shape = "a dict" if isinstance(node, NestedValues) else f"{node}, which has no list of values"
    raise SpecError(f"sampler='grid' tries every value, and {name!r} is {shape}: use sampler='random', or a list")


def _node(path: str, value: object) -> Node:
    subject = f"space(): {path!r}"
    if isinstance(value, Distribution):
        return value
    if isinstance(value, When):
        return value if isinstance(value.values, Distribution) else replace(value, values=_choice_of(value.values))
    if isinstance(value, Mapping):
        return NestedValues(tuple((_key(key, subject), _node(f"{path}.{key}", child)) for key, child in value.items()))
    if isinstance(value, list | tuple) or getattr(value, "ndim", None):
        return value_list(value, subject)
    return ConstantValue(plain(value, subject))


def _key(key: object, subject: str) -> str:
    if not isinstance(key, str):
        raise SpecError(f"{subject} holds a dict with the key {described(key)}; keys are text: write {str(key)!r}")
    return key


def _leaves(nodes: NestedValues, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Leaf, bool]]:
    """Path and leaf, and whether a condition decides on it."""
    for name, node in nodes.entries:
        path = (*above, name)
        if isinstance(node, NestedValues):
            yield from _leaves(node, path)
        elif isinstance(node, When):
            yield ".".join(path), node.values, True
        elif not isinstance(node, ConstantValue):
            yield ".".join(path), node, False


def _built(nodes: NestedValues, pick: Pick, outer: Params, above: tuple[str, ...]) -> Params:
    params: Params = {}
    for name, node in nodes.entries:
        value = _value(node, pick, outer | params, (*above, name))
        if value is not ABSENT:
            params[name] = value
    return params


def _value(node: Node, pick: Pick, params: Params, path: tuple[str, ...]) -> Any:
    match node:
        case ConstantValue(value=value):
            return value
        case NestedValues():
            return _built(node, pick, params, path)
        case When(predicate=predicate, values=values, otherwise=otherwise):
            active = holds(predicate, params, f"space(): the condition of {'.'.join(path)!r}")
            return pick(".".join(path), values) if active else otherwise
    return pick(".".join(path), node)


def _text(node: Node) -> str:
    match node:
        case ConstantValue(value=value):
            return f"= {shown(value, 40)}"
        case tuple():
            return f"in a grid of {shown(list(node), 60)}"
        case NestedValues(entries=entries):
            return "{" + ", ".join(f"{name} {_text(child)}" for name, child in entries) + "}"
        case When(values=values, otherwise=otherwise):
            suffix = "" if otherwise is ABSENT else f", otherwise {shown(otherwise, 40)}"
            return f"~ {values} when a condition holds{suffix}"
    text = str(node)
    return f"~ {text if len(text) <= 200 else text[:197] + '...'}"


def leaves_for(space: Space, rules: Sequence[AnyStopRule]) -> Leaves:
    """What the rules may change, by paths with dots; nothing unless one of them changes parameters.

    Raises SpecError for a space where a rule cannot make other cases.
    """
    rule = next((candidate for candidate in rules if isinstance(candidate, PBT)), None)
    if rule is None:
        return ()
    leaves = _changeable(space, rule)
    if not any(len(leaf) > 1 if isinstance(leaf, tuple) else leaf.size != 1 for _, leaf in leaves):
        raise SpecError(
            f"stopper {rule} changes parameters, and the space ({space}) has one value of each: give it a "
            "distribution, such as lr=loguniform(1e-4, 1e-1), or a list of values"
        )
    return leaves


def _changeable(space: Space, rule: PBT) -> Leaves:
    if isinstance(space, SampledSpace) and not space.has_code:
        return tuple(space.leaves.items())
    if isinstance(space, Grid) and space.where is None:
        axes = [(name, axis) for name, axis in space.axes if not isinstance(axis, When)]
        if len(axes) == len(space.axes):
            return tuple(axes)
    raise SpecError(
        f"stopper {rule} changes parameters while trials run, which it cannot do in a space with conditions (when, "
        "where=) or a list of cases: pass distributions and lists by name, and let the function ignore what does not "
        "apply"
    )


def as_space(source: object) -> Space:
    """A space as it is, a dict of lists as a grid, one with distributions as a space, a list of dicts as cases.

    Raises SpecError.
    """
    if isinstance(source, Space):
        return source
    if isinstance(source, Mapping):
        return space(source) if source else grid(source)
    if isinstance(source, list | tuple):
        return cases(source)
    raise SpecError(
        f"the space is {described(source)}; pass a dict of lists such as {{'lr': [0.1, 0.01]}} or of distributions, "
        "a list of dicts, or space(), grid(), zipped() or cases()"
    )


def from_file(file: "ParamsFile") -> Space:
    """The space that a parameter file describes."""
    if file.kind == "cases":
        return cases(cast(list[Params], file.values))
    make: Any = {"grid": grid, "zip": zipped, "space": space}[file.kind]
    return cast(Space, make(file.values))
