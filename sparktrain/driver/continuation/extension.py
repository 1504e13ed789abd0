"""A finished sweep that gets more trials, or a wider space. Old trials keep their results and their numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from sparktrain.base import formatting
from sparktrain.config import distribution
from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.errors import SpecError
from sparktrain.runs.history import StoredRun
from sparktrain.search.sampled_space import NestedValues, SampledSpace, as_space
from sparktrain.search.space import Grid, Space
from sparktrain.search.space_json import Document, from_document, to_document

_STEP = "start a new sweep with warm_start= (--warm-start) of this one, or resume with allow_changed='space'"

_NAMES = {"sampled": "sampled space", "cases": "list of cases", "zip": "zip", "grid": "grid", "unlisted": "large grid"}


class ExtendedRun(NamedTuple):
    """What a run becomes."""

    spec: SweepSpec
    space: Space
    lines: tuple[str, ...]
    """What is new, for the first lines of the run."""


@dataclass(frozen=True)
class Extension:
    """What a call adds to a sweep."""

    trials: int | None = None
    space: Any = None
    """A dict with the parameters that get other values, or a whole space; None for the same."""

    def of(self, stored_run: StoredRun) -> ExtendedRun:
        """The run with more. Raises SpecError for what would add nothing, or mix what cannot be compared."""
        plan = stored_run.plan
        spec = plan.sweep_spec()
        if plan.kind == "run":
            raise SpecError(f"{spec.name} is a run of one gang, only a sweep can be extended: see sparktrain.refit")
        listed = plan.sampler is msgspec.UNSET
        if self.space is None:
            space = from_document(plan.space)
            lines = list[str]()
        else:
            space, lines = self._widened(plan.space, plan.sampler)
        total = self._total(spec, len(stored_run.sweep().trials) // spec.replication.size, listed, bool(lines))
        if total != spec.trials:
            former_total = "" if spec.trials is None else f"from {spec.trials} "
            lines.insert(0, f"is extended {former_total}to {spec.replication.counted(total or 0)}")
        limits = {"target": spec.target, "plateau": spec.plateau, "budget": spec.budget_s}
        if dropped_limits := [name for name, limit in limits.items() if limit is not None]:
            lines.append(f"no longer ends by {', '.join(dropped_limits)}, which it was started with")
        # With its old target or budget the extended run would end at once: that is how it ended before.
        extended_spec = replace(spec, trials=total, target=None, plateau=None, budget_s=None)
        return ExtendedRun(extended_spec, space, tuple(lines))

    def _total(self, spec: SweepSpec, tried: int, listed: bool, wider: bool) -> int | None:
        if spec.trials is None and listed:
            if self.trials is not None:
                raise SpecError(
                    f"trials ({self.trials}): {spec.name} runs every combination of its space, so there are no more; "
                    "pass space= (--grid) with more values, and no trials"
                )
            if not wider:
                raise SpecError(
                    f"{spec.name} runs every combination of its space: pass space= (--grid) with more values"
                )
            return None
        if self.trials is None:
            raise SpecError(f"pass how many trials {spec.name} gets beside those that it has: trials=N (--trials N)")
        return (tried if spec.trials is None else spec.trials) + self.trials

    def _widened(self, before: Document, sampler: object) -> tuple[Space, list[str]]:
        """The wider space, and a line for each parameter that has changed."""
        space = _merged(before, self.space)
        after = to_document(space, None)
        if after["kind"] != before["kind"]:
            raise SpecError(f"the space is a {_NAMES[before['kind']]}, and would be a {_NAMES[after['kind']]}: {_STEP}")
        if before["kind"] == "unlisted":
            return space, [f"its space is now the {space}"]
        if isinstance(before["values"], list):
            new_cases = [case for case in after["values"] if case not in before["values"]]
            dropped = [case for case in before["values"] if case not in after["values"]]
            if dropped:
                raise SpecError(f"the space no longer has {shown(dropped[0])}, and an extended one only grows: {_STEP}")
            return space, [f"its list has {formatting.count(len(new_cases), 'case')} more"] if new_cases else []
        lines = _grown(before["values"], after["values"], ())
        if lines and sampler == "cmaes":
            raise SpecError(
                "sampler='cmaes' keeps to the ranges that it started with: extend by trials alone, or start a new "
                "sweep with the wider space"
            )
        return space, lines


def _merged(before: Document, space: Any) -> Space:
    """The stored space with the parameters of a dict, or the given one, which is whole."""
    new = as_space(space)
    if not isinstance(space, Mapping) or before["kind"] not in ("grid", "sampled") or "conditions" in before:
        return new
    old = from_document(before)
    if unknown := [name for name in new.names if name not in old.names]:
        raise SpecError(
            f"the space has no parameter {unknown[0]!r}{did_you_mean(unknown[0], old.names)}: trials without it could "
            f"not be compared with those that have it; {_STEP}"
        )
    entries = dict(new.nodes.entries if isinstance(new, SampledSpace) else new.axes if isinstance(new, Grid) else ())
    if isinstance(old, Grid):
        if isinstance(new, SampledSpace):
            raise SpecError(f"the space is a grid, and {new} has distributions: {_STEP}")
        return replace(old, axes=tuple((name, entries.get(name, axis)) for name, axis in old.axes))
    assert isinstance(old, SampledSpace)
    return SampledSpace(NestedValues(tuple((name, entries.get(name, node)) for name, node in old.nodes.entries)))


def _grown(before: Document, after: Document, above: tuple[str, ...]) -> list[str]:
    """A line for each parameter with more values. Raises SpecError where one has lost some, or is of another kind."""
    if [*before] != [*after]:
        lost = [name for name in before if name not in after]
        change = f"no longer has {lost[0]!r}" if lost else f"has {[*after]} in place of {[*before]}"
        raise SpecError(f"the space {change}, and an extended one has the same parameters: {_STEP}")
    return [line for name in before for line in _node_grown(before[name], after[name], (*above, name))]


def _node_grown(before: Any, after: Any, path: tuple[str, ...]) -> list[str]:
    name = ".".join(path)
    if before == after:
        return []
    if isinstance(before, list):
        before = {"list": before}
        after = {"list": after}  # an axis of a grid
    kinds = [next(iter(node)) for node in (before, after)]
    if kinds[0] != kinds[1]:
        raise SpecError(f"{name} is of kind {kinds[0]}, and would be of kind {kinds[1]}: {_STEP}")
    kind = kinds[0]
    if kind == "dict":
        return _grown(before["dict"], after["dict"], path)
    if kind == "when" and before.get("otherwise") == after.get("otherwise"):
        return _node_grown(before["when"], after["when"], path)
    old = before[kind]
    new = after[kind]
    if kind in ("list", "choice"):
        lost = [value for value in old if value not in new]
        if not lost:
            return [f"{name} has also {', '.join(map(shown, (value for value in new if value not in old)))}"]
        raise SpecError(f"{name} no longer has {shown(lost[0])}, and an extended space only grows: {_STEP}")
    if kind in ("value", "when", "normal") or new[0] > old[0] or new[1] < old[1] or new[2:] != old[2:]:
        raise SpecError(f"{name} was {_text(before)}, and {_text(after)} does not contain that: {_STEP}")
    if kind == "quniform" and abs((steps := (old[0] - new[0]) / old[2]) - round(steps)) > 1e-9:
        raise SpecError(f"{name} was {_text(before)}, and the steps of {_text(after)} miss its values: {_STEP}")
    return [f"{name} ~ {_text(after)}, was {_text(before)}"]


def _text(node: Document) -> str:
    return str(distribution.from_document(node)) if next(iter(node)) in distribution.KINDS else shown(node.get("value"))
