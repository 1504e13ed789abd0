"""Samplers of Optuna behind the contract of `sampler`: on a study in memory.

Each ask has a seed of its own, from the run's seed and the number of the trial, so that what follows a restart needs no
state of a random generator. The study gets results in the order in which the journal has them.
"""

import logging
import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sparktrain.base.ids import TrialId
from sparktrain.config.objectives import Constraint, Objective
from sparktrain.errors import SpecError
from sparktrain.search.cma_source import CmaSource
from sparktrain.search.exhaustive_samplers import cases_left
from sparktrain.search.optuna_import import import_optuna
from sparktrain.search.optuna_space import distributions_of, params_of, suggested, value_of
from sparktrain.search.sampled_space import MAX_REFUSED, Leaf, SampledSpace
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import Params

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import InMemoryStorage
    from optuna.study import Study
    from optuna.trial import Trial, TrialState

MOST_ASKS = 50
"""How often a sampler is asked for a case that `where=` accepts, before one is drawn at random."""
MOST_REPEATS = 5
"""How often it is asked for a case that is not there yet, where values are counted, before a repeated one is taken."""
_NAME = "sparktrain"
"""The study's name: Optuna's own names are random, and some of it follows from them."""
_MEMO = "optuna"
"""The key of a memo: a run may have had another sampler before."""
_OWN_ATTRS = ("fixed_params", "tpe:", "gp:")
"""What Optuna notes about a trial and needs only until its parameters are set."""

Maker = Callable[[int, "Mapping[str, BaseDistribution]"], "BaseSampler"]
"""Makes the sampler of one ask, by a seed and the distributions that all cases have."""


@dataclass(frozen=True)
class Goal:
    """What trials are compared by."""

    metric: str | None
    maximize: bool
    other_objectives: tuple[Objective, ...] = ()
    """Metrics that count beside it."""
    constraints: tuple[Constraint, ...] = ()

    def values(self, metrics: Mapping[str, float]) -> list[float] | None:
        """The values of the metric and the others; None where one is missing or not finite, or a bounded one is."""
        names = [self.metric, *(objective.metric for objective in self.other_objectives)]
        metric_values = [0.0 if name is None else metrics.get(name, math.nan) for name in names]
        bounded = [constraint.excess(metrics) for constraint in self.constraints]
        # Optuna takes infinity for the value of a complete trial.
        return metric_values if all(map(math.isfinite, [*metric_values, *bounded])) else None


@dataclass(frozen=True, kw_only=True)
class OptunaKind:
    """A sampler of Optuna, and how it is used."""

    make: Maker
    """Makes the sampler of each ask."""
    learns: bool
    batch: int = 1
    """The most cases of one call."""
    hooked: bool = False
    """The sampler may learn by its `after_trial`, also of trials of earlier drivers."""
    source: CmaSource | None = None
    """Gets the results of former runs, where `make` uses it."""


class OptunaSampler(Sampler):
    """Proposes what a sampler of Optuna suggests. Imports Optuna when it is used first."""

    def __init__(self, space: SampledSpace, total: int | None, goal: Goal, seed: int, kind: OptunaKind) -> None:
        self.total = total
        self.learns = kind.learns
        self._space = space
        self._goal = goal
        self._seed = seed
        self._kind = kind
        self._restoring = False
        self._axes = space.axes
        self._normal = {path for path, leaf in space.distributions.items() if leaf.kind == "normal"}
        self._feasible: dict[int, bool] = {}
        self._count = 0
        """Cases so far, of whatever space."""
        self._case_keys: set[bytes] | None = None if space.count is None else set()
        self._numbers = 0
        """Trials of Optuna: also those that were refused, and second results."""
        self._running: dict[TrialId, int] = {}
        """Optuna's number of each trial that has not ended."""
        self._journaled_attrs: dict[str, Any] = {}
        """The attributes of the study that the journal has."""
        self._study_and_storage: tuple[Study, InMemoryStorage] | None = None

    def suggest(self, count: int) -> Suggestion:
        """See base class."""
        import_optuna()
        notes = []
        cases = []
        quota = count if self.total is None else min(count, self.total - self._count)
        for _ in range(min(quota, self._kind.batch)):
            if (proposal := self._new_case()) is None:
                break
            self._enlist(proposal[0])
            cases.append(proposal[0])
            notes.append(proposal[1])
        exhausted = self._stopped or (self.total is not None and self._count >= self.total)
        return Suggestion(tuple(cases), exhausted, self._memo(notes))

    def observe(self, observation: Observation) -> None:
        """See base class. A second end of a trial is a trial more for Optuna, which has one result for each."""
        import_optuna()
        from optuna.trial import TrialState

        if observation.trial < 0 and self._case_keys is not None:
            self._case_keys.add(_key(dict(observation.params)))
        number = self._running.pop(observation.trial, None)
        if number is None and (params := params_of(self._space, observation.params)) is not None:
            # Optuna raises for a second end of a trial, and a retried trial ends twice.
            number = self._add(params, TrialState.RUNNING)
        if number is None:
            return  # of another space
        values = self._goal.values(observation.metrics)
        if observation.status is ObservedStatus.PRUNED and not self._goal.other_objectives:
            value = observation.metrics.get(self._goal.metric or "", math.nan)
            # Optuna takes the last intermediate value as that of a pruned trial, and TPE learns from it.
            if math.isfinite(value):
                self._study[1].set_trial_intermediate_value(self._trial_id(number), observation.step or 0, value)
            self._record_end(number, TrialState.PRUNED, [value] if math.isfinite(value) else None)
        elif observation.status is ObservedStatus.SUCCEEDED and values is not None:
            for constraint in self._goal.constraints:
                self._constrain(number, str(constraint), constraint.excess(observation.metrics))
            self._record_end(number, TrialState.COMPLETE, values)
            if observation.trial < 0 and self._kind.source is not None:
                self._kind.source.add(self._study[1].get_trial_params(self._trial_id(number)), values[0])
        else:
            self._record_end(number, TrialState.FAIL)

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See base class. Takes about half a millisecond for each trial."""
        self._restoring = True
        for event in history:
            if isinstance(event, Observation):
                self.observe(event)
            else:
                self._restore(event)
        self._restoring = False
        if self._kind.hooked and history:
            self._kind.make(0, {}).reseed_rng()  # its own generator would repeat the first cases

    # ---- cases

    def _new_case(self) -> tuple[Params, dict[str, Any]] | None:
        """As `_case`; None once the sampler has stopped its study, and while all that it has left is running."""
        if not self._kind.hooked:
            return self._case()
        # Samplers that try each case once stop their study after the last one, which works within `Study.optimize`
        # alone.
        if self._stopped or (self._running and cases_left(self._study[0], 0) == 0):
            return None
        return self._case()

    @property
    def _stopped(self) -> bool:
        """The sampler has called `Study.stop`: it has tried all that it can."""
        return self._kind.hooked and self._study[0]._stop_flag

    def _case(self) -> tuple[Params, dict[str, Any]] | None:
        """The next case, and what a restart needs beside it; None where the sampler stops while it looks for one."""
        from optuna.trial import TrialState

        fixed = self._combination()
        repeats = 0
        refused: list[dict[str, Any]] = []
        for _ in range(MOST_ASKS):
            trial = self._ask(fixed)
            case = self._space.built(partial(self._picked, trial))
            # Samplers of Optuna repeat cases of a discrete space, which Optuna leaves to its callers (optuna#2021,
            # optuna#5440).
            repeated = self._case_keys is not None and _key(case) in self._case_keys and repeats < MOST_REPEATS
            if not repeated and self._space.accepts(case):
                self._running[TrialId(self._count)] = trial.number
                return case, _note(refused, self._attrs(trial.number), self._raw(trial))
            repeats += repeated
            self._record_end(trial.number, TrialState.FAIL)
            if self._stopped:
                return None
            refused.append(self._attrs(trial.number))
        return self._drawn(fixed, refused)

    def _drawn(self, fixed: Mapping[str, int], refused: list[dict[str, Any]]) -> tuple[Params, dict[str, Any]]:
        """A case at random, where the sampler finds none that `where=` accepts. Raises SpecError for none at all."""
        from optuna.trial import TrialState

        source = random.Random(f"{self._seed}/{self._count}")
        values = {path: self._axes[path][index] for path, index in fixed.items()}
        for _ in range(MAX_REFUSED):
            if (case := self._space.draw(source, values)) is not None:
                params = params_of(self._space, case)
                assert params is not None
                self._running[TrialId(self._count)] = self._add(params, TrialState.RUNNING)
                return case, _note(refused, {}, self._raw_of(params))
        raise SpecError(
            f"space(where=...) has refused {MOST_ASKS} cases of the sampler and {MAX_REFUSED:,} random ones in a row, "
            f"of {self._space}: one must be left; correct the condition, or choose ranges within which it holds"
        )

    def _picked(self, trial: "Trial", path: str, leaf: Leaf) -> Any:
        return value_of(leaf, suggested(trial, path, self._distributions[path]))

    def _ask(self, fixed: Mapping[str, int]) -> "Trial":
        study, _ = self._study
        # A sampler and a seed for each ask: what follows a restart then needs the history alone. CRC-32, because
        # Python's `hash` of a text differs between processes.
        study.sampler = self._kind.make(zlib.crc32(f"{self._seed}/{self._numbers}".encode()), self._unconditional)
        self._numbers += 1
        if fixed:
            # Optuna uses an enqueued value that is out of range, with no more than a warning: these are indices of
            # lists.
            study.enqueue_trial(dict(fixed))
        return study.ask()

    def _combination(self) -> dict[str, int]:
        """The place in each list of the trial that comes next: combinations follow each other in a circle."""
        sizes = [len(values) for values in self._axes.values()]
        total = math.prod(sizes)
        for index in range(self._count, self._count + total):
            places = _digits(index % total, sizes)
            if self._is_feasible(index % total, places):
                return dict(zip(self._axes, places, strict=True))
        raise SpecError(
            f"space(where=...) refuses every combination of the lists of {self._space}; at least one must be left: "
            "correct the condition"
        )

    def _is_feasible(self, index: int, places: Sequence[int]) -> bool:
        """Whether `where=` accepts some case with this combination; found by draws, always the same ones."""
        if self._space.where is None or not places:
            return True
        if index not in self._feasible:
            source = random.Random(index)
            fixed = {path: self._axes[path][place] for path, place in zip(self._axes, places, strict=True)}
            draws = (self._space.draw(source, fixed) for _ in range(MAX_REFUSED))
            self._feasible[index] = any(case is not None for case in draws)
        return self._feasible[index]

    def _enlist(self, case: Params) -> None:
        self._count += 1
        if self._case_keys is not None:
            self._case_keys.add(_key(case))

    # ---- what a restart needs

    def _memo(self, notes: list[dict[str, Any]]) -> dict[str, Any]:
        attrs = self._study[1].get_study_system_attrs(self._study_id)
        changed = {name: value for name, value in attrs.items() if self._journaled_attrs.get(name) != value}
        self._journaled_attrs |= changed
        memo = {"trials": notes if any(notes) else [], "study": changed}
        parts = {name: part for name, part in memo.items() if part}
        return {_MEMO: parts} if parts else {}

    def _attrs(self, number: int) -> dict[str, Any]:
        """What Optuna has noted about a trial."""
        attrs = self._study[1].get_trial_system_attrs(self._trial_id(number))
        return {name: value for name, value in attrs.items() if not name.startswith(_OWN_ATTRS)}

    def _raw(self, trial: "Trial") -> dict[str, Any]:
        return self._raw_of(trial.params)

    def _raw_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters that do not follow from values to the last bit."""
        return {path: value for path, value in params.items() if path in self._normal}

    def _restore(self, past: PastSuggestion) -> None:
        from optuna.trial import TrialState

        memo = past.memo.get(_MEMO, {})
        notes = memo.get("trials") or [{} for _ in past.cases]
        for number, (case, note) in enumerate(zip(past.cases, notes, strict=True), past.first):
            # Cases that `where=` refused are trials of the study too: without them the numbers, and so the seeds, would
            # differ.
            for attrs in note.get("refused", ()):
                self._add({}, TrialState.FAIL, attrs)
            if (params := params_of(self._space, case)) is not None:
                params |= note.get("raw", {})
                self._running[TrialId(number)] = self._add(params, TrialState.RUNNING, note.get("attrs"))
            self._enlist(case)
        for name, value in memo.get("study", {}).items():
            self._study[1].set_study_system_attr(self._study_id, name, value)
            self._journaled_attrs[name] = value

    def _add(self, params: dict[str, Any], state: Any, attrs: Mapping[str, Any] | None = None) -> int:
        """Add a trial to the study; returns its number."""
        from optuna.trial import create_trial

        _, storage = self._study
        trial = create_trial(state=state, system_attrs=dict(attrs or {}))
        trial.params = params
        trial.distributions = _Shared((path, self._distributions[path]) for path in params)
        storage.create_new_trial(self._study_id, trial)
        self._numbers += 1
        return self._numbers - 1

    # ---- the study

    def _constrain(self, number: int, name: str, excess: float) -> None:
        """Note by how much a trial is beyond a bound."""
        from optuna.trial import Trial

        Trial(self._study[0], self._trial_id(number)).set_constraint(name, excess)

    def _record_end(self, number: int, state: "TrialState", values: list[float] | None = None) -> None:
        """End a trial of the study."""
        study, storage = self._study
        if self._restoring and not self._kind.hooked:
            storage.set_trial_state_values(self._trial_id(number), state, values)  # `tell` copies the trial
        else:
            study.tell(number, values if values and state.name == "COMPLETE" else None, state)

    def _trial_id(self, number: int) -> int:
        return self._study[1].get_trial_id_from_study_id_trial_number(self._study_id, number)

    @property
    def _study(self) -> "tuple[Study, InMemoryStorage]":
        if self._study_and_storage is None:
            self._study_and_storage = self._created()
        if self._kind.hooked:
            self._study_and_storage[0]._thread_local.in_optimize_loop = True  # without it `Study.stop` raises
        return self._study_and_storage

    def _created(self) -> "tuple[Study, InMemoryStorage]":
        import_optuna()
        import optuna
        from optuna.study import StudyDirection

        storage = optuna.storages.InMemoryStorage()
        ends = [self._goal.maximize, *(objective.mode == "max" for objective in self._goal.other_objectives)]
        directions = [StudyDirection.MAXIMIZE if is_max else StudyDirection.MINIMIZE for is_max in ends]
        with _quiet("optuna.storages._in_memory"):
            self._study_id = storage.create_new_study(directions, _NAME)
        self._distributions = distributions_of(self._space)
        conditional = set(self._space.conditional)
        self._unconditional = {
            path: dist for path, dist in self._distributions.items() if path not in conditional and not dist.single()
        }
        study = optuna.study.Study(_NAME, storage, optuna.samplers.RandomSampler(seed=0), optuna.pruners.NopPruner())
        return study, storage


class _Shared(dict[str, "BaseDistribution"]):
    """Distributions that a copy of their trial shares: Optuna copies a trial that is added, and they never change."""

    def __deepcopy__(self, memo: object) -> "_Shared":
        return self


def _note(refused: list[dict[str, Any]], attrs: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    note = {"refused": refused, "attrs": attrs, "raw": raw}
    return {name: part for name, part in note.items() if part}


def _digits(index: int, sizes: Sequence[int]) -> list[int]:
    """The place in each list of a combination; the last list varies fastest."""
    places = []
    for size in reversed(sizes):
        index, place = divmod(index, size)
        places.append(place)
    return places[::-1]


def _key(case: Params) -> bytes:
    return msgspec.json.encode(case, order="sorted")


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep one of Optuna's loggers from printing a line."""
    chosen = logging.getLogger(name)
    was_disabled = chosen.disabled
    chosen.disabled = True
    try:
        yield
    finally:
        chosen.disabled = was_disabled
