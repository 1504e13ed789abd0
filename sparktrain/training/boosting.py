"""What a member does after each boosting round, for any library: reports, stops, checkpoints and resumes.

The callbacks in the folders of the libraries give it the evaluations of a round and the booster in the library's own
format. A checkpoint holds these bytes, the number of rounds that are in them, and the evaluations of each: a restart
trains the missing rounds on top of the booster, and the other callbacks of the training get the rounds and evaluations
of an unbroken one.
"""

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparktrain.config.param_values import described, did_you_mean
from sparktrain.errors import SpecError, UserError
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.metrics import passed_count

RUN_METRIC = "auto"
"""The evaluation with the name of the run's metric."""


@dataclass(frozen=True, kw_only=True)
class BoostingMember:
    """What the rounds need of the context of a member."""

    report: Callable[..., None]
    """`report(step, **metrics)`."""
    should_stop: Callable[[], bool]
    """Whether the run asks the trial to stop."""
    checkpoints: CheckpointSaver
    rank: int
    metric: str | None
    """The metric of the run."""


@dataclass(frozen=True, kw_only=True)
class BoostingLibrary:
    """How messages name what the user calls."""

    name: str
    callback: str
    """The call that makes the callback, such as `ctx.xgboost_callback()`."""
    evaluations: str
    """How to pass an evaluation set."""
    init_model: str
    """The argument of the library that takes the booster to continue."""


class Evaluation(NamedTuple):
    """A metric of an evaluation set after a round, as LightGBM has it."""

    data: str
    metric: str
    value: float
    maximize: bool = False
    """Whether higher values are better; only LightGBM has it."""


class _EvaluationLog:
    """The evaluations of each round as columns, so that a checkpoint after thousands of rounds costs milliseconds."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, bool], int] = {}
        self._counts: list[int] = []
        self._of: list[int] = []
        self._values: list[float] = []

    def append(self, evaluations: Sequence[Evaluation]) -> None:
        self._counts.append(len(evaluations))
        for data, metric, value, maximize in evaluations:
            self._of.append(self._names.setdefault((data, metric, maximize), len(self._names)))
            self._values.append(value)

    def packed(self) -> dict[str, Any]:
        return {
            "names": [list(name) for name in self._names],
            "counts": np.array(self._counts, "int64"),
            "of": np.array(self._of, "int64"),
            "values": np.array(self._values, "float64"),
        }


class BoostingRounds:
    """The rounds of one training. Its methods belong to the thread that trains."""

    def __init__(
        self,
        member: BoostingMember,
        library: BoostingLibrary,
        *,
        metric: str | None,
        checkpoint_every: int | None,
        keep: int,
    ) -> None:
        """Reads the checkpoint to resume from. Blocks on the local disk. Raises SpecError, UserError, CheckpointError.

        `metric` is the evaluation that is the run's metric: `RUN_METRIC`, a name, or None where no evaluation is.
        `checkpoint_every` is a number of rounds, or None: the training neither saves checkpoints nor resumes.
        """
        self._member = member
        self._library = library
        self._metric = member.metric if metric == RUN_METRIC else metric
        self._every = _interval(checkpoint_every, library)
        self._keep = keep
        self._started = False
        self._counted = False
        self.metrics: dict[str, float] = {}
        """What the newest round has reported."""
        self.booster: bytes | None = None
        """The booster of the checkpoint; None where training starts from nothing."""
        self.first = 0
        """Rounds that are in this booster."""
        self.history: list[Sequence[Evaluation]] = []
        """The evaluations of each of these rounds; empty where an older version has saved them."""
        self.params: dict[str, Any] = {}
        """The parameters of the training that its callbacks have changed until now."""
        self._log = _EvaluationLog()
        if self._every is not None:
            self._resume()

    def remaining(self, total: int) -> int:
        """How many of `total` rounds are left. Raises TypeError or ValueError for what is no number from 0."""
        count = passed_count(total, f"{self._library.callback}.remaining", "total")
        self._counted = True
        return max(0, count - self.first)

    def start(self, *, continues: bool) -> None:
        """Check a training before its first round: `continues` is whether it has rounds of a booster.

        Raises SpecError.
        """
        library = self._library
        if self._started:
            raise SpecError(
                f"{library.callback} made a callback for one training, and a second training has it too: a trial has "
                "one training with reports and checkpoints; for cross-validation pass folds= to sparktrain.sweep"
            )
        self._started = True
        if self.first and not (continues and self._counted):
            raise SpecError(
                f"this trial resumes after {self.first} rounds, and the training of {library.name} starts from none: "
                f"pass {library.init_model}=callback.init_model, and callback.remaining(n) as the number of rounds"
            )

    def finish(self, index: int, evaluations: Sequence[Evaluation], booster: Callable[[], bytes] | None) -> bool:
        """Report round `index`, counted from 0 over all generations; returns whether to stop after it.

        `booster` returns the bytes of a checkpoint; None for a round that needs none. Blocks as `ctx.should_stop` and
        `CheckpointSaver.save` do. Raises SpecError where no evaluation is the metric, and what `ctx.report` raises.
        """
        self._log.append(evaluations)
        self.metrics = self._named({f"{data}-{metric}": value for data, metric, value, _ in evaluations})
        self._member.report(index, **self.metrics)
        stops = self._member.should_stop()
        rounds = index + 1
        if self._every is not None and booster is not None and (stops or rounds % self._every == 0):
            self._save(rounds, booster())
        return stops

    def _named(self, scores: Mapping[str, float]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        sources: dict[str, str] = {}
        chosen: float | None = None
        for source, value in scores.items():
            name = source if source == self._metric else re.sub(r"\W", "_", source)
            if name in metrics:
                raise SpecError(
                    f"{self._library.callback}: the evaluations {sources[name]!r} and {source!r} are both reported as "
                    f"{name!r}; give their evaluation sets other names"
                )
            metrics[name] = value
            sources[name] = source
            if self._metric in (name, source):
                chosen = value
        if self._metric is not None and chosen is None:
            raise SpecError(self._lacking(metrics))
        if self._member.metric is not None and chosen is not None:
            metrics[self._member.metric] = chosen
        return metrics

    def _lacking(self, metrics: Mapping[str, float]) -> str:
        subject = f"{self._library.callback}: the metric {self._metric!r}"
        otherwise = "metric=None where the training function computes the metric of the run by itself"
        if not metrics:
            evaluations = self._library.evaluations
            return f"{subject} is that of an evaluation, and there is none: pass {evaluations}, or {otherwise}"
        names = ", ".join(map(repr, metrics))
        return (
            f"{subject} is none of the evaluations {names}; pass metric=, the name of one of them, or "
            f"{otherwise}{did_you_mean(self._metric, metrics)}"
        )

    def _save(self, rounds: int, booster: bytes) -> None:
        if self._member.rank:
            return
        entry: Any = {
            "library": self._library.name,
            "rounds": rounds,
            "names": list(self.metrics),
            "values": np.array(list(self.metrics.values()), "float64"),
            "booster": np.frombuffer(booster, "uint8"),
            "history": self._log.packed(),
            "params": self.params,
        }
        self._member.checkpoints.save(rounds, keep=self._keep, boosting=entry)

    def _resume(self) -> None:
        restored = self._member.checkpoints.restore()
        if restored is None:
            return
        entry: Any = restored.extra.get("boosting")
        name = self._library.name
        if entry is None or entry["library"] != name:
            content = "no booster" if entry is None else f"a booster of {entry['library']}"
            raise UserError(
                f"{self._library.callback}: the checkpoint of step {restored.step} has {content}, and {name} resumes "
                "from one of its own; pass checkpoint_every=None where the function saves and restores by itself"
            )
        self.first = entry["rounds"]
        self.metrics = dict(zip(entry["names"], entry["values"].tolist(), strict=True))
        self.booster = entry["booster"].tobytes()
        history = _unpacked(entry["history"]) if "history" in entry else []
        self.history = history if len(history) == self.first else []
        self.params = entry.get("params", {})
        for evaluations in self.history:
            self._log.append(evaluations)


class BoostingCallback(ABC):
    """What the callback of every library has for the function. Its methods belong to the thread that trains."""

    def __init__(self, member: BoostingMember, library: BoostingLibrary, **options: Any) -> None:
        """`options` are those of `BoostingRounds`, which has the errors."""
        self._rounds = BoostingRounds(member, library, **options)

    @property
    def init_model(self) -> Any:
        """A copy of the booster of the newest checkpoint, for the argument that continues it; None without one."""
        booster = self._rounds.booster
        return None if booster is None else self._loaded(booster)

    @property
    def metrics(self) -> dict[str, float]:
        """What the newest round has reported, in this generation or before its checkpoint: a result for a trial."""
        return dict(self._rounds.metrics)

    def remaining(self, total: int) -> int:
        """How many of `total` rounds are not in `init_model`: for `num_boost_round=` or `n_estimators=`.

        Raises TypeError or ValueError for what is no integer from 0, and SpecError where none is left and the library
        cannot train no rounds, as LightGBM.
        """
        rounds = self._rounds.remaining(total)
        self._check_left(total, rounds)
        return rounds

    @abstractmethod
    def _loaded(self, booster: bytes) -> Any:
        """The booster of a checkpoint."""

    def _check_left(self, total: int, left: int) -> None:  # noqa: B027 - most libraries train no rounds too
        """Raise SpecError where the library cannot train `left` of `total` rounds."""


def _unpacked(entry: Mapping[str, Any]) -> list[Sequence[Evaluation]]:
    names = [entry["names"][of] for of in entry["of"].tolist()]
    values = entry["values"].tolist()
    flat = (Evaluation(data, metric, value, up) for (data, metric, up), value in zip(names, values, strict=True))
    return [list(itertools.islice(flat, count)) for count in entry["counts"].tolist()]


def _interval(value: Any, library: BoostingLibrary) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(
            f"{library.callback}: checkpoint_every is {described(value)}; pass a number of rounds from 1, or None for "
            "no checkpoints"
        )
    return value
