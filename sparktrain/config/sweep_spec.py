"""The specification of one sweep: frozen, and valid once constructed."""

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from sparktrain.base.ids import CHIEF
from sparktrain.config.backends import Backend
from sparktrain.config.gang_options import MEMBER_DEFAULTS, MemberKeywords
from sparktrain.config.gang_spec import ALONE, GangSpec
from sparktrain.config.metric_names import Mode, metric_name, mode
from sparktrain.config.objectives import Constraint, Objective, constraints, objectives
from sparktrain.config.option_rules import notice_address
from sparktrain.config.param_values import described, shown
from sparktrain.config.quantities import MIB, count, memory, seconds
from sparktrain.config.replication import Replication, replication
from sparktrain.config.stoppers import ASHA, PBT, AnyStopRule, rules_of
from sparktrain.errors import SpecError

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?<!\.)")
"""Names that every store accepts for a folder. Azure drops trailing dots, so that two runs would share a folder."""


class _Checked:
    """A frozen dataclass that converts its values while it is constructed."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class SearchSpec(_Checked):
    """What a sweep tries, and what it compares."""

    name: str
    """Name of the run, and of its directory."""
    metric: str | None = None
    """Metric that orders the trials; without one they are not compared."""
    mode: Mode = "max"
    other_metrics: tuple[Objective, ...] = ()
    """Metrics that count beside `metric`."""
    constraints: tuple[Constraint, ...] = ()
    """Bounds of metrics; a trial that breaks one is not the best, whatever its metric is."""
    trials: int | None = None
    """The most sets of parameters that are tried; None for all of the space."""
    repeats: int = 1
    """Trials of each set of parameters, with seeds of their own."""
    folds: int = 1
    """Folds of the data: each repeat has one trial for each fold; 1 for no cross-validation."""
    racing: bool = True
    """Whether trials of a set of parameters are not run once it cannot become the best one."""
    seed: int = 0
    """Every trial's seed follows from this and its number, see `seed_of`."""

    def _check_search(self) -> None:
        run_name(self.name)
        metric_name(self.metric)
        mode(self.mode)
        self._set(
            other_metrics=objectives(self.other_metrics, "other_metrics"), constraints=constraints(self.constraints)
        )
        for goal in self.other_metrics:
            if self.metric is None:
                raise SpecError(
                    f"other_metrics has {goal.metric!r} beside the metric of the sweep, and there is none: pass "
                    "metric= too, which comes first"
                )
            if goal.metric == self.metric:
                raise SpecError(f"other_metrics has {goal.metric!r}, which is the metric itself: leave it out there")
        if self.trials is not None:
            self._set(trials=count(self.trials, "trials", least=1))
        checked = replication(self.repeats, self.folds)
        self._set(repeats=checked.repeats, folds=checked.folds, seed=sweep_seed(self.seed))

    @property
    def replication(self) -> Replication:
        """How many trials each set of parameters has."""
        return Replication(self.repeats, self.folds)

    def seed_of(self, trial: int) -> int:
        """The seed of a trial, see `Replication.seed_number`."""
        return trial_seed(self.seed, self.replication.seed_number(trial))


@dataclass(frozen=True, kw_only=True)
class LimitSpec(_Checked):
    """What ends a trial, and what ends the sweep."""

    trial_timeout_s: float | None = None
    report_timeout_s: float | None = None
    """How long a trial that has reported metrics may report none before it counts as hanging."""
    timeout_s: float | None = None
    """Limit of the whole sweep."""
    max_retries: int = 3
    """Retries of a trial after its process, agent or executor was lost; never after its own error."""
    max_failures: int | Literal["auto"] | None = "auto"
    """How many failed trials end the sweep; "auto": the first ones do when they all fail in the same way."""
    target: float | None = None
    """Value of the metric that ends the sweep once a trial reaches it."""
    plateau: int | None = None
    """Trials in a row without a better one that end the sweep."""
    budget_s: float | None = None
    """Time of slots in all after which the sweep ends."""
    stopper: tuple[AnyStopRule, ...] = ()
    """Rules that stop trials which cannot win; they compare values of `metric`."""

    def judges(self, rank: int) -> bool:
        """Whether rules judge the reports of the member `rank` of a trial."""
        return rank == CHIEF and bool(self.stopper)

    def _check_limits(self) -> None:
        for field in ("budget_s", "trial_timeout_s", "report_timeout_s", "timeout_s"):
            self._set(**{field: seconds(getattr(self, field), field)})
        self._set(
            stopper=rules_of(self.stopper),
            max_retries=count(self.max_retries, "max_retries", least=0),
            max_failures=failures(self.max_failures),
            target=finite(self.target, "target"),
        )
        if self.plateau is not None:
            self._set(plateau=count(self.plateau, "plateau", least=1))


# By inheritance and not by fields that hold the parts: the plan of a run stores all fields side by side, in this order.
@dataclass(frozen=True, kw_only=True)
class SweepSpec(LimitSpec, SearchSpec):
    """One sweep. Construction raises SpecError for a value that breaks its rule, and names the rule."""

    recovers: bool = False
    """Whether a crash of a one-member trial is retried too, as it always is for larger gangs."""
    gang: GangSpec = ALONE
    """The gang of each trial."""
    gpus: int = 0
    """GPUs for each member of a trial."""
    gpu_memory: int | None = None
    """Bytes of its one GPU that each member may use; None for all of it."""
    member_options: MemberKeywords = MEMBER_DEFAULTS
    """What each member reads itself."""
    start_timeout_s: float = 300.0
    """How long to wait for an agent while there is none."""
    notice: str | None = None
    """File or URL at which agents look for the notice that their host will be lost."""

    def __post_init__(self) -> None:
        self._check_search()
        self._check_limits()
        self._check_comparisons()
        self._set(gpus=count(self.gpus, "gpus", least=0))
        self._set_gpu_memory()
        start_timeout_s = seconds(self.start_timeout_s, "start_timeout_s")
        if start_timeout_s is None:
            raise SpecError("start_timeout_s is None, a wait must end: pass seconds, such as 300")
        self._set(start_timeout_s=start_timeout_s)
        if self.notice is not None:
            self._set(notice=notice_address(self.notice))
        if type(self.gang) is not GangSpec:
            raise SpecError(f"gang is {described(self.gang)}; pass a GangSpec, such as GangSpec(workers=2)")
        if self.gang.standby and not self.member_options.healing:
            raise SpecError(
                f"standby={self.gang.standby} with healing=False: all members end with one that is lost, and nothing "
                "could take its place; leave out one of them"
            )
        if self.gang.standby and self.gpus and self.gang.backend in (Backend.TORCH, Backend.JAX):
            raise SpecError(
                f"standby={self.gang.standby} with backend {self.gang.backend.value!r} and gpus={self.gpus}: NCCL "
                "connects members on "
                "GPUs, none of them can leave the others after a loss, and nothing could take the place of a "
                "lost one; train on CPUs, or leave standby out, and pass more agents= for the next process of a "
                "lost member"
            )

    def _check_comparisons(self) -> None:
        """Limits that compare trials need a metric, and some of them single trials."""
        if self.stopper and self.metric is None:
            raise SpecError(
                f"stopper {self.stopper[0]} compares trials by a metric, and there is none: pass metric=, the name of "
                "a number that the function passes to ctx.report()"
            )
        for name in ("target", "plateau"):
            if getattr(self, name) is not None and self.metric is None:
                raise SpecError(f"{name} compares trials by a metric, and there is none: pass metric=")
        size = self.replication.size
        pausing = [rule for rule in self.stopper if isinstance(rule, ASHA) and rule.promote]
        changing = [rule for rule in self.stopper if isinstance(rule, PBT)]
        if pausing and size > 1:
            raise SpecError(
                f"stopper {pausing[0]} pauses single trials, and each set of parameters has {size} of "
                "them: pass promote=False, or neither repeats nor folds"
            )
        if changing and size > 1:
            raise SpecError(
                f"stopper {changing[0]} changes the parameters of single trials, and each set of parameters has "
                f"{size} of them: pass neither repeats nor folds"
            )

    def _set_gpu_memory(self) -> None:
        if self.gpu_memory is None:
            return
        self._set(gpu_memory=memory(self.gpu_memory, "gpu_memory"))
        if self.gpus > 1:
            raise SpecError(
                f"gpus ({self.gpus}) must be 1 with gpu_memory, which is a part of one GPU for each process: leave out "
                "gpus, or leave out gpu_memory"
            )
        self._set(gpus=1)

    @property
    def gpu_mib(self) -> int:
        """MiB of its GPU that each member may use; 0: all."""
        return (self.gpu_memory or 0) // MIB


def trial_seed(sweep_seed: int, trial: int) -> int:
    """The seed of a trial: 31 bits, so that NumPy and Keras accept it; independent of when and where the trial runs.

    The first four bytes, big-endian, of SHA-256 of the text "sparktrain:<sweep_seed>:<trial>" in ASCII, without their
    lowest bit.

    >>> trial_seed(0, 0), trial_seed(0, 1), trial_seed(1, 0)
    (659839522, 181339870, 581039301)
    """
    digest = hashlib.sha256(f"sparktrain:{sweep_seed}:{trial}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def run_name(value: object, subject: str = "name") -> str:
    """`value` when it can name a run and its directory. Raises SpecError."""
    if not isinstance(value, str):
        raise SpecError(f"{subject} is {described(value)}, text is expected; write {str(value)!r}")
    if not _RUN_NAME.fullmatch(value):
        fitting = re.sub(r"[^A-Za-z0-9._-]", "-", value).lstrip("._-")[:128].rstrip(".") or "run-1"
        raise SpecError(
            f"{subject} ({shown(value)}) names a directory: it has 1 to 128 letters, digits, '.', '_' or '-', and "
            f"starts with a letter or digit, and does not end with '.'; use {fitting!r}"
        )
    return value


def failures(value: object, subject: str = "max_failures") -> int | Literal["auto"] | None:
    """`value` as a number of trials, "auto" or None; "none" and a number may be text, as on a command line.

    Raises SpecError.
    """
    if value is None or value == "none":
        return None
    if value == "auto":
        return "auto"
    if isinstance(value, str) and not value.isdecimal():
        raise SpecError(f"{subject} ({shown(value)}) must be a number of trials, 'auto', or None for never")
    return count(int(value) if isinstance(value, str) else value, subject, least=1)


def finite(value: object, subject: str) -> float | None:
    """`value` as a finite number, also from text; None for None. Raises SpecError."""
    if value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SpecError(f"{subject} ({shown(value)}) must be a finite number, such as 0.95")
    return number


def sweep_seed(value: object, subject: str = "seed") -> int:
    """`value` when it is an integer from 0 to 2**63 - 1. Raises SpecError."""
    result = count(value, subject, least=0)
    if result >= 2**63:
        raise SpecError(f"{subject} ({shown(result)}) must be below 2**63; pass a smaller number")
    return result
