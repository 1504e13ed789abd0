"""What a call may be told besides its function and its parameters, as `sparktrain.api` documents it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeVar, cast

from sparktrain.config.gang_spec import ALONE, AUTO, Backend, GangSpec, wanted
from sparktrain.config.param_values import did_you_mean
from sparktrain.config.quantities import Duration, count, seconds
from sparktrain.config.store_address import STORE_TIMEOUT_S
from sparktrain.config.sweep_spec import Mode
from sparktrain.driver.backend_choice import Choice, choose
from sparktrain.driver.forwarded_env import environment
from sparktrain.errors import SpecError
from sparktrain.usercode.serialize import CODE_BYTES, MOST_CODE_BYTES

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a sweep and a run of one gang have in common."""

    place: ClassVar[str]
    """Where the caller wrote the parameters, for messages."""
    kind: ClassVar[Literal["sweep", "run"]]
    """What the call gives back."""

    metric: str | None = None
    mode: Mode | None = None
    backend: Backend | str = AUTO
    dir: str | None = None
    name: str | None = None
    seed: int | None = None
    timeout: Duration | None = None
    start_timeout: Duration = 300.0
    gpus: int = 0
    log_limit: int = GIB
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    forward_env: Sequence[str] = ()
    code_limit: int = CODE_BYTES
    preload: Sequence[str] | None = None
    progress: bool = True
    store_timeout: Duration = STORE_TIMEOUT_S
    data_version: str | None = None
    allow_changed: Sequence[str] = ()
    retry_failed: bool = False

    def gang(self) -> GangSpec:
        """What trains each trial; its backend counts only where `choice` is None. Raises SpecError."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Variables that trials get; those that are given prevail over the driver's. Raises SpecError."""
        return environment(self.env, self.forward_env)

    def most_code(self) -> int:
        """Bytes that the function may have with all that it takes along. Raises SpecError."""
        limit = count(self.code_limit, "code_limit", least=1)
        if limit > MOST_CODE_BYTES:
            raise SpecError(
                f"code_limit ({limit}) must be at most {MOST_CODE_BYTES} bytes: each agent gets them in one message; "
                "load data within the function, from files that executors can read"
            )
        return limit

    def choice(self, gang: GangSpec, *, strategy: bool = False) -> Choice | None:
        """The backend of `gang` where none is named; None where one is, or none is needed.

        `strategy`: the function makes one of TensorFlow's.
        """
        if gang.size == 1 or wanted(self.backend) != AUTO:
            return None
        return choose(servers=gang.size > gang.workers, strategy=strategy)

    def _named(self, servers: bool = False) -> Backend:
        if (backend := wanted(self.backend)) != AUTO:
            return backend
        return Backend.TENSORFLOW if servers else ALONE.backend

    def limits(self) -> dict[str, Any]:
        """How long and how often trials run, as fields of `SweepSpec`. Raises SpecError."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Options):
    """What `sweep` and `launch` may be told."""

    place: ClassVar[str] = "the space"
    kind: ClassVar[Literal["sweep", "run"]] = "sweep"

    trials: int | None = None
    trial_timeout: Duration | None = None
    hang_timeout: Duration | None = None
    retries: int = 3
    max_failures: int | str | None = "auto"
    workers_per_trial: int = 1

    def gang(self) -> GangSpec:
        """See base class."""
        workers = count(self.workers_per_trial, "workers_per_trial", least=1)
        hang_timeout_s = seconds(self.hang_timeout, "hang_timeout") or GangSpec.hang_timeout_s
        return GangSpec(workers=workers, backend=self._named(), hang_timeout_s=hang_timeout_s)

    def limits(self) -> dict[str, Any]:
        """See base class."""
        return {
            "trials": self.trials,
            "trial_timeout_s": seconds(self.trial_timeout, "trial_timeout"),
            "report_timeout_s": seconds(self.hang_timeout, "hang_timeout"),
            "retries": self.retries,
            "max_failures": self.max_failures,
        }


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """What `run` may be told."""

    place: ClassVar[str] = "params"
    kind: ClassVar[Literal["sweep", "run"]] = "run"

    workers: int
    ps: int = 0
    evaluator: bool = False
    min_workers: int | None = None
    max_restarts: int = 3
    hang_timeout: Duration = 120.0

    def gang(self) -> GangSpec:
        """See base class."""
        return GangSpec(
            workers=self.workers,
            ps=self.ps,
            evaluator=self.evaluator,
            backend=self._named(bool(self.ps or self.evaluator)),
            min_workers=self.min_workers,
            hang_timeout_s=cast(float, seconds(self.hang_timeout, "hang_timeout")),  # it refuses None
        )

    def limits(self) -> dict[str, Any]:
        """See base class."""
        return {"retries": count(self.max_restarts, "max_restarts", least=0), "recovers": True}


Kind = TypeVar("Kind", bound=Options)


def options_of(kind: type[Kind], **given: Any) -> Kind:
    """The options. Raises SpecError for one that there is not."""
    known = [each.name for each in fields(kind)]
    for name in given:
        if name not in known:
            raise SpecError(
                f"there is no option {name!r}{did_you_mean(name, known) or ';'} there are {', '.join(known)}"
            )
    return kind(**given)
