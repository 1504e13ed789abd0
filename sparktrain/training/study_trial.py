"""The `trial` of an Optuna objective in a training process: each question goes to the study in the driver.

It has the interface of `optuna.trial.Trial` that objectives use. Threads of an objective use it one at a time.
"""

import inspect
import json
import math
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
    distribution_to_json,
)
from optuna.study import StudyDirection

from sparktrain.config.param_values import described, native
from sparktrain.state.outcome import EndedEarly
from sparktrain.training.context import TrainContext

ANSWER_TIMEOUT_S = 600.0
"""How long the driver may take for an answer: a Gaussian process takes some seconds, a slow storage a minute."""
_UNANSWERED = 64
"""The most reports on their way: an objective that never asks waits for the driver then."""


class RemoteStudy:
    """`trial.study` in a training process: what never changes in a study, its attributes, and `stop`."""

    def __init__(self, facts: Mapping[str, Any], ask: Callable[..., Any]) -> None:
        self.study_name: str = facts["name"]
        self.directions = [StudyDirection[name] for name in facts["directions"]]
        self.metric_names: list[str] | None = facts["metric_names"]
        self._ask = ask

    @property
    def direction(self) -> StudyDirection:
        """As `optuna.Study.direction`. Raises RuntimeError where the study has several objectives."""
        if len(self.directions) > 1:
            raise RuntimeError(
                f"trial.study.direction: the study has {len(self.directions)} objectives; use trial.study.directions"
            )
        return self.directions[0]

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The attributes of the study now. Blocks for the answer of the driver.

        Raises TypeError for a study in memory with an attribute that JSON lacks.
        """
        attrs: dict[str, Any] = self._ask("trial.study.user_attrs", kind="study_attrs")
        return attrs

    def stop(self) -> None:
        """As `optuna.Study.stop`: no trial starts any more, and those that run come to their end.

        Blocks for the answer of the driver.
        """
        self._ask("trial.study.stop()", kind="stop")

    def __getattr__(self, name: str) -> Any:
        raise _absent(f"trial.study.{name}")


class StudyTrial(optuna.trial.BaseTrial):
    """One trial of a study that the driver holds."""

    def __init__(self, ctx: TrainContext, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Blocks until the driver has asked the study for the trial."""
        self._ctx = ctx
        self._timeout_s = timeout_s
        self._process = os.getpid()
        self._turn = threading.RLock()
        """One question at a time: answers come in the order of the questions."""
        self._unanswered = 0
        self._reported: dict[int, float] = {}
        self._constraints: dict[str, float] = {}
        self._newest = -1
        started = self._ask("the start of the objective", kind="start")
        self._number: int = started["number"]
        self._started = datetime.fromisoformat(started["started"]) if started["started"] else None
        self._user_attrs: dict[str, Any] = started["attrs"]
        self._study = RemoteStudy(started["study"], self._ask_in_turn)
        self.objectives = len(self._study.directions)
        self._params: dict[str, Any] = {}
        self._distributions: dict[str, BaseDistribution] = {}
        self._places: dict[str, int] = {}
        """Which of its choices a categorical parameter has."""

    # ---- parameters

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """See base class. Blocks for the answer of the driver."""
        exact = None if step is None else float(step)
        return float(self._suggest(name, FloatDistribution(float(low), float(high), log=bool(log), step=exact)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """See base class. Blocks for the answer of the driver."""
        numbers = (native(bound) for bound in (low, high, step))
        low, high, step = numbers
        return int(self._suggest(name, IntDistribution(low, high, log=bool(log), step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """See base class. Blocks for the answer of the driver.

        Raises TypeError for a choice that the study cannot store: it has plain values, such as 1 for `numpy.int64(1)`.
        """
        domain = tuple(choices)
        stored = tuple(_stored(choice, f"trial.suggest_categorical({name!r}): choice {choice!r}") for choice in domain)
        self._suggest(name, CategoricalDistribution(stored))
        # The objective's own object: the study has a plain value in its place.
        return domain[self._places[name]]

    # Deprecated: they warn as Optuna does, and call the methods above.
    suggest_uniform = optuna.trial.Trial.suggest_uniform
    suggest_loguniform = optuna.trial.Trial.suggest_loguniform
    suggest_discrete_uniform = optuna.trial.Trial.suggest_discrete_uniform

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        with self._turn:
            return self._suggested(name, distribution)

    def _suggested(self, name: str, distribution: BaseDistribution) -> Any:
        old_distribution = self._distributions.get(name)
        if old_distribution is not None:
            check_distribution_compatibility(old_distribution, distribution)
            if old_distribution != distribution:
                warnings.warn(
                    f"Inconsistent parameter values for distribution with name {name!r}: the values of the first call "
                    f"are used, {old_distribution}",
                    RuntimeWarning,
                    stacklevel=3,
                )
            return self._params[name]
        text = distribution_to_json(distribution)
        stored = self._ask(f"trial.suggest_*({name!r})", kind="suggest", name=name, distribution=text)
        self._distributions[name] = distribution
        self._places[name] = int(stored)
        self._params[name] = distribution.to_external_repr(stored)
        return self._params[name]

    # ---- reports

    def report(self, value: float, step: int) -> None:
        """See base class. The value is the metric `value` of the run, too."""
        self._check_one_objective("report")
        try:
            number = float(value)
        except (TypeError, ValueError):
            message = f"The `value` argument is of type '{type(value)}' but supposed to be a float."
            raise TypeError(message) from None
        try:
            count = int(step)
        except (TypeError, ValueError):
            message = f"The `step` argument is of type '{type(step)}' but supposed to be an int."
            raise TypeError(message) from None
        if count < 0:
            raise ValueError(f"`step={count}` must be non-negative.")
        with self._turn:
            self._report(number, count)

    def _report(self, number: float, count: int) -> None:
        if count in self._reported:
            warnings.warn(
                f"The reported value is ignored because this `step={count}` is already reported.", stacklevel=3
            )
            return
        self._reported[count] = number
        if count > self._newest:  # reports of a run grow
            self._newest = count
            self._ctx.report(count, value=number)
        self._send(f"trial.report({number:g}, {count})", kind="report", step=count, value=repr(number))

    def should_prune(self) -> bool:
        """See base class. The study's pruner decides in the driver; blocks for its answer."""
        self._check_one_objective("should_prune")
        with self._turn:
            prune, self._pruner = self._ask("trial.should_prune()", kind="prune")
            return bool(prune)

    _pruner = "the objective"

    def ended_early(self, error: optuna.TrialPruned) -> EndedEarly:
        """What the run gets where the objective raises `TrialPruned`."""
        step = max(self._reported, default=0)
        value = self._reported.get(step, math.nan)
        shown = f"value {value:.4g}" if step in self._reported else "no value was reported"
        reason = f"stopped at step {step}: {shown}, TrialPruned {str(error) or 'without a message'} ({self._pruner})"
        return EndedEarly(step, value if math.isfinite(value) else None, reason)

    # ---- attributes

    def set_user_attr(self, key: str, value: Any) -> None:
        """See base class. `value` becomes JSON, scalars and arrays of NumPy too; raises TypeError for any other."""
        doing = f"trial.set_user_attr({key!r})"
        stored = _stored(value, doing)
        with self._turn:
            self._send(doing, kind="attr", name=key, value=stored)
            self._user_attrs[key] = stored

    def set_constraint(self, key: str, value: float) -> None:
        """See base class: feasible where `value` is 0 or less. Blocks for the answer of the driver."""
        if math.isnan(float(value)):
            raise ValueError(f"Attempted to set a constraint for {key!r}, but NaN is not allowed.")
        with self._turn:
            self._ask(f"trial.set_constraint({key!r})", kind="constraint", name=key, value=repr(float(value)))
            self._constraints.setdefault(key, float(value))

    @property
    def constraints(self) -> dict[str, float]:
        """See base class."""
        return dict(self._constraints)

    @property
    def params(self) -> dict[str, Any]:
        """See base class."""
        return dict(self._params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """See base class."""
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """See base class."""
        return dict(self._user_attrs)

    @property
    def datetime_start(self) -> datetime | None:
        """See base class. By the clock of the driver."""
        return self._started

    @property
    def number(self) -> int:
        """The number of the trial in the study; `ctx.trial` is that in the run."""
        return self._number

    @property
    def study(self) -> RemoteStudy:
        """Its name, directions and attributes, and `stop()`; everything else raises AttributeError."""
        return self._study

    def __getattr__(self, name: str) -> Any:
        raise _absent(f"trial.{name}")

    def _check_one_objective(self, called: str) -> None:
        if self.objectives > 1:
            raise NotImplementedError(f"Trial.{called} is not supported for multi-objective optimization.")

    # ---- the driver

    def _send(self, doing: str, **question: Any) -> None:
        """Ask without waiting; from time to time, wait."""
        self._check_process(doing)
        self._unanswered += 1
        if self._unanswered >= _UNANSWERED:
            self._ask(doing, **question)
            return
        self._ctx.ask_sampler(json.dumps(question).encode(), None)

    def _ask_in_turn(self, doing: str, **question: Any) -> Any:
        with self._turn:
            return self._ask(doing, **question)

    def _ask(self, doing: str, **question: Any) -> Any:
        """The driver's answer. Raises ValueError with the words of Optuna, TimeoutError without an answer."""
        self._check_process(doing)
        self._unanswered = 0
        reply = self._ctx.ask_sampler(json.dumps(question).encode(), self._timeout_s)
        if reply is None:
            raise TimeoutError(
                f"trial {self._ctx.trial}: the driver has not answered {doing} within {self._timeout_s:g} s: see the "
                "driver's log for the storage of the study, and call st.optuna.optimize() again to resume"
            )
        answer, problem = reply
        if problem:
            raise _raised(problem, doing)
        return json.loads(answer)

    def _check_process(self, doing: str) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                f"{doing} is called in process {os.getpid()}, which the objective has started, and only its own can "
                "ask the study: ask for all values first, and pass them to that process"
            )


def _absent(name: str) -> AttributeError:
    return AttributeError(
        f"{name} is in the driver alone: use it there, in callbacks=, or pass to the objective what it needs of it"
    )


def _stored(value: Any, subject: str) -> Any:
    """A value as JSON returns it, with scalars and arrays of NumPy as Python's. Raises TypeError for any other."""
    if value is None or isinstance(value, str | bool | int | float):
        return native(value)
    if isinstance(value, Mapping):
        return {str(native(name)): _stored(child, subject) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(child, subject) for child in value]
    if (scalar := native(value)) is not value:
        return _stored(scalar, subject)
    if hasattr(value, "tolist"):  # an array of NumPy or of a framework, a Series
        return _stored(value.tolist(), subject)
    raise TypeError(
        f"{subject} is {described(value)}, and a study keeps None, bools, numbers, text, and lists and dicts of these: "
        "pass a name, and look it up in the objective"
    )


def run_objective(objective: Callable[..., Any], ctx: TrainContext) -> dict[str, float] | EndedEarly:
    """Call an objective once with its `trial`, and with `ctx` if it names that. Raises what it raises."""
    trial = StudyTrial(ctx)
    extra = {"ctx": ctx} if _names_ctx(objective) else {}
    try:
        returned = objective(trial, **extra)
    except optuna.TrialPruned as pruned:
        return trial.ended_early(pruned)
    return _values(returned, trial.objectives)


def _names_ctx(objective: Callable[..., Any]) -> bool:
    try:
        return "ctx" in inspect.signature(objective).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def _values(returned: Any, objectives: int) -> dict[str, float]:
    if objectives == 1:
        return {"value": _value(returned)}
    if isinstance(returned, str) or not isinstance(returned, Sequence) or len(returned) != objectives:
        raise ValueError(
            f"the objective returned {returned!r}, and the study has {objectives} objectives: return a tuple of as "
            "many numbers"
        )
    return {f"values_{index}": _value(objective_value) for index, objective_value in enumerate(returned)}


def _value(returned: Any) -> float:
    try:
        return float(returned)
    except (TypeError, ValueError):
        raise ValueError(
            f"the objective returned {returned!r}, which is no number: return the value that the study compares"
        ) from None


def _raised(problem: str, doing: str) -> Exception:
    kind, _, text = problem.partition(": ")
    error_types: dict[str, type[Exception]] = {"TypeError": TypeError, "NotImplementedError": NotImplementedError}
    return error_types.get(kind, ValueError)(f"{doing}: {text or problem}")
