"""The options of a call, as `config.option_catalog` defines them, and what they mean for its run."""

import secrets
from typing import Any, ClassVar, Literal, cast

from sparktrain.clock import SystemClock
from sparktrain.config.call_option import settled
from sparktrain.config.direction import mode_of
from sparktrain.config.gang_spec import ALONE, AUTO, Backend, GangSpec, backend_or_auto
from sparktrain.config.metric_names import metric_name
from sparktrain.config.option_catalog import CommonKeywords, LaunchKeywords, RunKeywords
from sparktrain.config.quantities import seconds
from sparktrain.config.server_settings import server_mode
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.backend_choice import Choice, choose
from sparktrain.driver.forwarded_env import environment
from sparktrain.errors import SpecError
from sparktrain.usercode.serialize import MOST_CODE_BYTES


class Options:
    """What a sweep and a run of one gang share: every option, checked, by its name in `config.option_catalog`."""

    place: ClassVar[str]
    """Where the caller wrote the parameters, for messages."""
    kind: ClassVar[Literal["sweep", "run"]]
    """What the call returns."""
    keywords: ClassVar[type]
    asked: CommonKeywords

    def __init__(self, **options: Any) -> None:
        """Raises SpecError for an option that breaks a rule of the catalog."""
        self.asked = cast(Any, settled(self.keywords, options, self.kind))  # a TypedDict: it was checked against that

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and type(self) is type(other) and self.asked == other.asked

    __hash__ = None  # type: ignore[assignment]  # it holds dicts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(name for name in self.asked)})"  # values may be secrets

    @property
    def metric(self) -> str | None:
        """The entry of the result that is compared."""
        raise NotImplementedError

    @property
    def concurrent(self) -> int | None:
        """Most trials that train at a time; None where only the slots of the session limit them."""
        return None

    def gang(self) -> GangSpec:
        """What trains each trial; its backend counts only where `choice` is None. Raises SpecError."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Environment variables of trials; given ones override the driver's. Raises SpecError."""
        return environment(self.asked["env"], self.asked["forward_env"])

    def most_code(self) -> int:
        """Limit of the function's bytes with all that is sent with it. Raises SpecError."""
        limit = self.asked["code_limit"]
        if limit > MOST_CODE_BYTES:
            raise SpecError(
                f"code_limit ({limit}) must be at most {MOST_CODE_BYTES} bytes: each agent gets them in one message; "
                "load data within the function, from files that executors can read"
            )
        return limit

    def choice(self, gang: GangSpec, *, strategy: bool = False) -> Choice | None:
        """The backend of `gang` where none is named; None where one is, or none is needed.

        `strategy`: the function makes one of TensorFlow's. Raises SpecError for one in a gang that averages weights.
        """
        if strategy and gang.local_steps is not None:
            raise SpecError(
                f"local_steps={gang.local_steps} with a function that makes a strategy of TensorFlow, which averages "
                "gradients by itself: leave local_steps out, or train by ctx.distribute(optimizer) in place of the "
                "strategy"
            )
        if gang.size == 1 or backend_or_auto(self.asked["backend"]) != AUTO:
            return None
        return choose(servers=gang.size > gang.workers, strategy=strategy)

    def _named(self, servers: bool = False) -> Backend:
        if (backend := backend_or_auto(self.asked["backend"])) != AUTO:
            return backend
        return Backend.TENSORFLOW if servers else ALONE.backend

    def limits(self) -> dict[str, Any]:
        """How long and how often trials run, as fields of `SweepSpec`. Raises SpecError."""
        raise NotImplementedError

    def spec(self, gang: GangSpec, slug: str) -> SweepSpec:
        """The specification of the run, with a name that starts with `slug` where none is given. Raises SpecError."""
        arguments = self.asked
        return SweepSpec(
            name=arguments["name"] if arguments["name"] is not None else f"{slug}-{SystemClock().stamp()}",
            metric=self.metric,
            mode=mode_of(metric_name(self.metric), arguments["mode"]),
            seed=arguments["seed"] if arguments["seed"] is not None else secrets.randbelow(2**31),
            timeout_s=seconds(arguments["timeout"], "timeout"),
            start_timeout_s=seconds(arguments["start_timeout"], "start_timeout") or 0.0,
            gang=gang,
            gpus=arguments["gpus"],
            gpu_memory=cast(int | None, arguments["gpu_memory"]),  # its rule has converted text
            log_limit_bytes=arguments["log_limit"],
            **self.limits(),
        )


class SweepOptions(Options):
    """The options of `sweep` and `launch`."""

    place: ClassVar[str] = "the space"
    kind: ClassVar[Literal["sweep", "run"]] = "sweep"

    keywords: ClassVar[type] = LaunchKeywords
    asked: LaunchKeywords

    @property
    def metric(self) -> str | None:
        """See base class."""
        return self.asked["metric"]

    @property
    def concurrent(self) -> int | None:
        """See base class."""
        return self.asked["max_concurrent_trials"]

    def gang(self) -> GangSpec:
        """See base class."""
        if (backend := self._named()) is Backend.PARAMETER_SERVER:
            raise SpecError(
                f"backend {backend.value!r} of a sweep: its gangs have no parameter servers; choose 'horovod' or "
                "'tensorflow', or train one gang by sparktrain.run(ps=1)"
            )
        hang_timeout_s = seconds(self.asked["hang_timeout"], "hang_timeout") or GangSpec.hang_timeout_s
        return GangSpec(
            workers=self.asked["workers_per_trial"],
            backend=backend,
            local_steps=self.asked["local_steps"],
            hang_timeout_s=hang_timeout_s,
        )

    def limits(self) -> dict[str, Any]:
        """See base class."""
        arguments = self.asked
        return {
            "trials": arguments["trials"],
            "repeats": arguments["repeats"],
            "folds": arguments["folds"],
            "racing": arguments["racing"],
            "trial_timeout_s": seconds(arguments["trial_timeout"], "trial_timeout"),
            "report_timeout_s": seconds(arguments["hang_timeout"], "hang_timeout"),
            "max_retries": arguments["max_retries"],
            "max_failures": arguments["max_failures"],
            "stopper": arguments["stopper"],
            "other_metrics": arguments["other_metrics"],
            "constraints": arguments["constraints"],
            "target": arguments["target"],
            "plateau": arguments["plateau"],
            "budget_s": seconds(arguments["budget"], "budget"),
        }


class RunOptions(Options):
    """The options of `run`."""

    place: ClassVar[str] = "params"
    kind: ClassVar[Literal["sweep", "run"]] = "run"

    keywords: ClassVar[type] = RunKeywords
    asked: RunKeywords

    @property
    def metric(self) -> str | None:
        """See base class."""
        return self.asked["metric"]

    def gang(self) -> GangSpec:
        """See base class."""
        arguments = self.asked
        return GangSpec(
            workers=arguments["workers"],
            ps=arguments["ps"],
            ps_mode=server_mode(arguments["ps_mode"]),
            backup_workers=arguments["backup_workers"],
            evaluator=arguments["evaluator"],
            backend=self._named(bool(arguments["ps"] or arguments["evaluator"])),
            min_workers=arguments["min_workers"],
            local_steps=arguments["local_steps"],
            hang_timeout_s=cast(float, seconds(arguments["hang_timeout"], "hang_timeout")),  # it refuses None
        )

    def limits(self) -> dict[str, Any]:
        """See base class."""
        return {"max_retries": self.asked["max_retries"], "recovers": True}
