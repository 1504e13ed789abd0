"""What a call may be told besides its function and its parameters, as `sparktrain.api` documents it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar, cast

from sparktrain.errors import SpecError
from sparktrain.spec.gang import Backend, GangSpec, backend
from sparktrain.spec.quantities import Duration, count, seconds
from sparktrain.spec.store import STORE_TIMEOUT_S
from sparktrain.spec.sweep import Mode
from sparktrain.spec.values import did_you_mean

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a sweep and a run of one gang have in common."""

    place: ClassVar[str]
    """Where the caller wrote the parameters, for messages."""
    kind: ClassVar[Literal["sweep", "run"]]
    """What the call gives back."""

    metric: str | None = None
    mode: Mode = "max"
    backend: Backend | str = Backend.HOROVOD
    dir: str | None = None
    name: str | None = None
    seed: int | None = None
    timeout: Duration | None = None
    start_timeout: Duration = 300.0
    gpus: int = 0
    log_limit: int = GIB
    preload: Sequence[str] | None = None
    progress: bool = True
    store_timeout: Duration = STORE_TIMEOUT_S
    data_version: str | None = None
    allow_changed: Sequence[str] = ()
    retry_failed: bool = False

    def gang(self) -> GangSpec:
        """What trains each trial. Raises SpecError."""
        raise NotImplementedError

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
    retries: int = 3
    workers_per_trial: int = 1

    def gang(self) -> GangSpec:
        """See base class."""
        workers = count(self.workers_per_trial, "workers_per_trial", least=1)
        return GangSpec(workers=workers, backend=backend(self.backend))

    def limits(self) -> dict[str, Any]:
        """See base class."""
        timeout_s = seconds(self.trial_timeout, "trial_timeout")
        return {"trials": self.trials, "trial_timeout_s": timeout_s, "retries": self.retries}


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
            backend=backend(self.backend),
            min_workers=self.min_workers,
            hang_timeout_s=cast(float, seconds(self.hang_timeout, "hang_timeout")),  # it refuses None
        )

    def limits(self) -> dict[str, Any]:
        """See base class."""
        return {"retries": count(self.max_restarts, "max_restarts", least=0), "recovers": True}


Kind = TypeVar("Kind", bound=Options)


def options_of(kind: type[Kind], **given: Any) -> Kind:
    """The options. Raises SpecError for one that there is not."""
    known = [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            raise SpecError(
                f"there is no option {name!r}{did_you_mean(name, known) or ';'} there are {', '.join(known)}"
            )
    return kind(**given)
