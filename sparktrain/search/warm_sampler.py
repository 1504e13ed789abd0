"""What a sampler knows before its first case: results of former trials, and points that are tried first."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import Distribution
from sparktrain.config.param_values import did_you_mean, shown, value_at
from sparktrain.errors import SpecError
from sparktrain.search.grid import MAX_TRIALS
from sparktrain.search.optuna_space import param_of, value_of
from sparktrain.search.sampled_space import Leaf, SampledSpace, as_choices
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import Grid, ListedSpace, Params, Space


class WarmSampler(Sampler):
    """Proposes `points` first, then what `inner` does, which knows `observations` and the points.

    `inner` is restored once the last point is proposed, with all that came before: it then needs no call of its own for
    a former trial.
    """

    def __init__(self, inner: Sampler, points: Sequence[Params], observations: Sequence[Observation]) -> None:
        self.learns = inner.learns
        self._inner = inner
        self._all = list(points)
        self._observations = observations
        self._history: list[PastSuggestion | Observation] = list(observations)
        self._proposed_count = 0
        self._remaining_points = list(points)

    @property
    def total(self) -> int | None:  # type: ignore[override]  # it grows with what the inner one learns
        """See base class."""
        return self._inner.total

    def suggest(self, count: int) -> Suggestion:
        """See base class."""
        if not self._remaining_points:
            return self._inner.suggest(count)
        cases = tuple(self._remaining_points[:count])
        self._remaining_points = self._remaining_points[count:]
        self._history.append(PastSuggestion(TrialId(self._proposed_count), cases, False))
        self._proposed_count += len(cases)
        self._open()
        return Suggestion(cases, exhausted=not self._remaining_points and self._proposed_count == self._inner.total)

    def observe(self, observation: Observation) -> None:
        """See base class."""
        if self._remaining_points:
            self._history.append(observation)
        else:
            self._inner.observe(observation)

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See base class."""
        self._history = [*self._observations, *history]
        self._proposed_count = sum(len(event.cases) for event in history if isinstance(event, PastSuggestion))
        self._remaining_points = self._all[self._proposed_count :]
        self._open()

    def _open(self) -> None:
        """Give the inner sampler all that came before its first case, once there is no point left."""
        if not self._remaining_points:
            self._inner.restore(self._history)
            self._history = []


class Placed(NamedTuple):
    """Where parameters are in a space."""

    case: Params | None
    """The case as the space makes it, with its constants; None when they are outside."""
    problem: str = ""
    """Why they are outside."""


class Places:
    """Finds parameters of elsewhere in a space: from files, tables and users, where 64 may be 64.0."""

    def __init__(self, space: Space) -> None:
        self._space = as_choices(space) if isinstance(space, Grid) else space
        self._listed: dict[str, Params] | None = None

    def find(self, params: Mapping[str, Any]) -> Placed:
        """The case that has these parameters; constants of the space may be left out."""
        if isinstance(self._space, SampledSpace):
            return _in_sampled(self._space, params)
        if self._listed is None:
            assert isinstance(self._space, ListedSpace)
            listed = zip(range(MAX_TRIALS), self._space, strict=False)
            self._listed = {_key(case): case for _, case in listed}
        case = self._listed.get(_key(params))
        return Placed(case, "" if case is not None else f"{shown(dict(params))} is not among the {self._space}")


class _OutsideError(Exception):
    """A value is outside of its leaf."""


def _in_sampled(space: SampledSpace, params: Mapping[str, Any]) -> Placed:
    def pick(path: str, leaf: Leaf) -> Any:
        try:
            value = value_at(params, path)
        except KeyError:
            raise _OutsideError(f"{path!r} is missing") from None
        return _fitted(path, leaf, value)

    try:
        case = space.built(pick)
        if extra := _beyond(params, case, ()):
            return Placed(None, extra)
        if not space.accepts(case):
            return Placed(None, f"where= refuses {shown(case)}")
    except _OutsideError as error:
        return Placed(None, str(error))
    except SpecError as error:
        return Placed(None, str(error))
    return Placed(case)


def _fitted(path: str, leaf: Leaf, value: Any) -> Any:
    """The value as the leaf has it."""
    for candidate in (value, int(value)) if isinstance(value, float) and value.is_integer() else (value,):
        param = param_of(leaf, candidate)
        if param is not None:
            return candidate if isinstance(leaf, Distribution) and leaf.kind == "normal" else value_of(leaf, param)
    raise _OutsideError(f"{path} = {shown(value)} is not in {leaf if isinstance(leaf, Distribution) else list(leaf)}")


def _beyond(params: Mapping[str, Any], case: Mapping[str, Any], above: tuple[str, ...]) -> str:
    """What `params` has beside the case; empty for nothing."""
    for name, value in params.items():
        path = ".".join((*above, name))
        if name not in case:
            return f"{path!r} is no parameter of this case{did_you_mean(name, case)}"
        if isinstance(value, Mapping) and isinstance(case[name], Mapping):
            if excess := _beyond(value, case[name], (*above, name)):
                return excess
        elif value != case[name]:
            return f"{path} = {shown(value)}, and the space has {shown(case[name])}"
    return ""


def _key(case: Mapping[str, Any]) -> str:
    return json.dumps(_with_integers(case), sort_keys=True)


def _with_integers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_integers(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_with_integers(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
