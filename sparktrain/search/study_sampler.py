"""A study of Optuna as the sampler of a run, where trials ask for their parameters while they run.

Only this process holds the study. A trial of the run is asked of the study when its objective starts, and has a user
attribute by which another driver finds it again.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sparktrain.base.ids import TrialId
from sparktrain.search.exhaustive_samplers import cases_left
from sparktrain.search.sampler import (
    AnsweringSampler,
    Observation,
    ObservedStatus,
    PastAnswer,
    PastSuggestion,
    Reply,
    Suggestion,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial, TrialState

VALUE = "value"
"""The metric of a study with one objective; with several they are `values_0`, `values_1` and so on."""
LABEL = "sparktrain:trial"
"""The user attribute with the run and the number of the trial."""
OnEnd = Callable[["Study", "FrozenTrial"], None]
"""Called after each trial."""

logger = logging.getLogger("sparktrain")


class StudySampler(AnsweringSampler):
    """Answers the questions of `training.study_trial` from a study, and records the ends of trials there.

    At most `total` trials; none starts once the sampler, a callback or an objective has called `Study.stop`.
    """

    learns = True

    def __init__(self, study: "Study", total: int | None, on_end: OnEnd = lambda study, trial: None) -> None:
        self.total = total
        self._study = study
        self._on_end = on_end
        self._run = ""
        self._count = 0
        self._started_trials: set[TrialId] = set()
        """Trials that have asked, or ended before they could."""
        self._busy = False
        self._running: dict[TrialId, Trial] = {}
        self._past_trials: dict[TrialId, FrozenTrial] = {}
        """Trials of the run that the study had when this driver started."""
        self._trials_elsewhere: dict[TrialId, list[FrozenTrial]] = {}
        """Finished trials of other runs by their numbers there: of the original of a copied run, or of a moved run of
        an older sparktrain."""
        self._params: dict[TrialId, dict[str, Any]] = {}
        """What the journal has of each trial: parameters, and the same for distributions and attributes."""
        self._distributions: dict[TrialId, dict[str, str]] = {}
        self._attrs: dict[TrialId, dict[str, Any]] = {}

    # ---- the contract of samplers

    def open(self, run: str, answers: Sequence[PastAnswer], place: str = "") -> None:
        """See `AnsweringSampler`. Blocks on the storage of the study."""
        self._run = run
        self._study._stop_flag = False  # as `Study.optimize` does at its start
        # Without copies: those of 100,000 trials take 4 s.
        for frozen in self._study.get_trials(deepcopy=False):
            of_run, _, number = str(frozen.user_attrs.get(LABEL, "")).rpartition("#")
            if not number.isdecimal():
                continue
            if of_run in (run, place):  # perhaps one that the journal lacks, for its driver was lost
                self._past_trials[TrialId(int(number))] = frozen
            elif frozen.state.is_finished():
                self._trials_elsewhere.setdefault(TrialId(int(number)), []).append(frozen)
        for past_answer in answers:
            self._params.setdefault(past_answer.trial, {}).update(past_answer.params)
            self._distributions.setdefault(past_answer.trial, {}).update(past_answer.memo.get("distributions", {}))
            self._attrs.setdefault(past_answer.trial, {}).update(past_answer.memo.get("attrs", {}))

    def suggest(self, count: int) -> Suggestion:
        """See `Sampler`. Cases are empty: trials ask for their parameters."""
        with self._called():
            quota = count if self.total is None else min(count, self.total - self._count)
            quota = 0 if self._study._stop_flag else min(quota, self._new(quota))
            self._count += quota
            over = self._study._stop_flag or (self.total is not None and self._count >= self.total)
            return Suggestion(tuple({} for _ in range(quota)), over)

    def _new(self, count: int) -> int:
        """How many of `count` trials the study's sampler has something new for. When none runs, it decides itself."""
        unasked = self._count - len(self._started_trials)
        remaining = cases_left(self._study, unasked)
        if remaining is None or (remaining == 0 and not unasked and not self._running):
            return count
        return remaining

    def observe(self, observation: Observation) -> None:
        """See `Sampler`. Blocks on the storage of the study, and on the callbacks."""
        with self._called():
            self._started_trials.add(observation.trial)
            ended = self._end(observation)
            if ended is not None:
                self._on_end(self._study, ended)

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See `Sampler`. Ends that the study lacks, for its storage failed, are recorded there."""
        with self._called():
            for event in history:
                if isinstance(event, PastSuggestion):
                    self._count += len(event.cases)
                    continue
                self._started_trials.add(event.trial)
                if (frozen_trial := self._past_trials.get(event.trial)) is not None:
                    is_known = frozen_trial.state.is_finished()
                else:
                    is_known = self._ended_elsewhere(event)
                if not is_known:
                    self._end(event)

    def close(self) -> None:
        """Record trials without an end as failed: the run is over. Blocks on the storage; raises nothing.

        Not where a call of the study has not returned: its storage hangs, and a resume records what is missing.
        """
        from optuna.trial import TrialState

        if self._busy:
            return
        for number, trial in self._running.items():
            with suppress(Exception):  # a storage that has failed ended the run, which can be resumed
                logger.debug("trial %d ends without a result", number)
                self._study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    @contextmanager
    def _called(self) -> Iterator[None]:
        """A call of the study, in whatever thread: `Study.stop` works in it, as it does in `Study.optimize`."""
        self._busy = True
        self._study._thread_local.in_optimize_loop = True
        try:
            yield
        finally:
            self._study._thread_local.in_optimize_loop = False
            self._busy = False

    @property
    def line(self) -> str:
        """See base class."""
        study = self._study
        parts = [type(study.sampler).__name__, type(study.pruner).__name__]
        return f"study {study.study_name!r} ({', '.join(parts)}) proposes the parameters that each trial asks for"

    # ---- questions

    def answer(self, trial: TrialId, question: bytes) -> Reply:
        """See `AnsweringSampler`. Blocks on the storage of the study."""
        request = json.loads(question)
        try:
            with self._called():
                return self._reply(trial, request)
        except (ValueError, TypeError, NotImplementedError) as error:  # what Optuna raises for wrong arguments
            return Reply(problem=f"{type(error).__name__}: {error}")

    def _reply(self, number: TrialId, request: Mapping[str, Any]) -> Reply:
        trial = self._trial(number)
        match request["kind"]:
            case "start":
                return Reply(_json(self._start(trial)), memo=self._note(number, {}))
            case "suggest":
                return self._suggest(number, trial, request)
            case "report":
                self._report(trial, request["step"], float(request["value"]))
            case "prune":
                return Reply(_json([bool(trial.should_prune()), type(self._study.pruner).__name__]))
            case "attr":
                trial.set_user_attr(request["name"], request["value"])
                return Reply(b"null", memo=self._note(number, {request["name"]: request["value"]}))
            case "stop":
                self._study.stop()
            case "study_attrs":
                return Reply(_json(self._study.user_attrs))
            case "constraint":
                trial.set_constraint(request["name"], float(request["value"]))
        return Reply(b"null")

    def _start(self, trial: "Trial") -> dict[str, Any]:
        attrs = {name: value for name, value in trial.user_attrs.items() if name != LABEL}
        started = trial.datetime_start
        return {
            "number": trial.number,
            "started": started.isoformat() if started is not None else None,
            "attrs": attrs,
            "study": {
                "name": self._study.study_name,
                "directions": [direction.name for direction in self._study.directions],
                "metric_names": self._study.metric_names,
            },
        }

    def _suggest(self, number: TrialId, trial: "Trial", request: Mapping[str, Any]) -> Reply:
        from optuna.distributions import json_to_distribution

        name = request["name"]
        distribution = json_to_distribution(request["distribution"])
        value = _suggested(trial, name, distribution)
        params = self._params.setdefault(number, {})
        fresh = name not in params
        if fresh:
            params[name] = value
            self._distributions.setdefault(number, {})[name] = request["distribution"]
        registered = trial.distributions[name]
        memo = {"distributions": {name: request["distribution"]}} if fresh else {}
        return Reply(_json(float(registered.to_internal_repr(value))), params={name: value} if fresh else {}, memo=memo)

    def _report(self, trial: "Trial", step: int, value: float) -> None:
        """Record a value, unless an earlier generation of the trial has reported that step."""
        if step not in self._study._storage.get_trial(trial._trial_id).intermediate_values:
            trial.report(value, step)

    def _note(self, number: TrialId, attrs: dict[str, Any]) -> dict[str, Any]:
        """What the journal gets of new attributes; at the start of a trial, that the study has it."""
        fresh = number not in self._attrs
        trial_attrs = self._attrs.setdefault(number, {})
        trial_attrs.update(attrs)
        return {"attrs": attrs} if attrs or fresh else {}

    # ---- trials

    def _trial(self, number: TrialId) -> "Trial":
        if number not in self._running:
            self._running[number] = self._optuna_trial(number)
            self._started_trials.add(number)
        return self._running[number]

    def _optuna_trial(self, number: TrialId) -> "Trial":
        """The trial that an earlier driver had, one with the same parameters where that has ended, or a new one."""
        from optuna.trial import Trial

        frozen_trial = self._past_trials.pop(number, None)
        if frozen_trial is not None and not frozen_trial.state.is_finished():
            return Trial(self._study, frozen_trial._trial_id)
        if number in self._attrs:
            return self._added(number)
        trial = self._study.ask()
        trial.set_user_attr(LABEL, self._label(number))
        return trial

    def _added(self, number: TrialId) -> "Trial":
        """A running trial with what the journal has: the study is another one, or the trial is retried."""
        from optuna.distributions import json_to_distribution
        from optuna.trial import Trial, TrialState, create_trial

        frozen_trial = create_trial(
            state=TrialState.RUNNING,
            params=self._params.get(number, {}),
            distributions={
                name: json_to_distribution(text) for name, text in self._distributions.get(number, {}).items()
            },
            user_attrs=self._attrs[number] | {LABEL: self._label(number)},
        )
        return Trial(self._study, self._study._storage.create_new_trial(self._study._study_id, frozen_trial))

    def _end(self, observation: Observation) -> "FrozenTrial | None":
        """Record the end of a trial in the study; None where it never started there."""
        number = observation.trial
        if number not in self._running and number not in self._attrs:
            return None  # its process was lost before the objective started
        trial = self._trial(number)
        del self._running[number]
        state, values = self._outcome(observation)
        return self._study.tell(trial, values, state=state, skip_if_finished=True)

    def _ended_elsewhere(self, observation: Observation) -> bool:
        """Whether the study has this trial from the run that was copied: it must not count twice."""
        params = self._params.get(observation.trial, {})
        state, values = self._outcome(observation)
        return any(
            frozen.params == params and frozen.state is state and (values is None or frozen.values == values)
            for frozen in self._trials_elsewhere.get(observation.trial, ())
        )

    def _outcome(self, observation: Observation) -> "tuple[TrialState, list[float] | None]":
        """The state of an ended trial in the study, and its values where it has succeeded."""
        from optuna.trial import TrialState

        values = self._values(observation)
        if observation.status is ObservedStatus.SUCCEEDED and not any(map(math.isnan, values)):
            return TrialState.COMPLETE, values
        return (TrialState.PRUNED if observation.status is ObservedStatus.PRUNED else TrialState.FAIL), None

    def _values(self, observation: Observation) -> list[float]:
        names = metrics_of_study(len(self._study.directions))
        return [observation.metrics.get(name, math.nan) for name in names]

    def _label(self, number: TrialId) -> str:
        return f"{self._run}#{number}"


def metrics_of_study(objectives: int) -> list[str]:
    """The names of the values that an objective returns."""
    return [VALUE] if objectives == 1 else [f"values_{index}" for index in range(objectives)]


def _suggested(trial: "Trial", name: str, distribution: "BaseDistribution") -> Any:
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(distribution, FloatDistribution):
        low = distribution.low
        high = distribution.high
        return trial.suggest_float(name, low, high, step=distribution.step, log=distribution.log)
    if isinstance(distribution, IntDistribution):
        low = distribution.low
        high = distribution.high
        return trial.suggest_int(name, low, high, step=distribution.step, log=distribution.log)
    return trial.suggest_categorical(name, distribution.choices)  # type: ignore[attr-defined]  # there is no fourth


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
