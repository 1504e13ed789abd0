"""The options of a call, as `config.option_catalog` defines them, and what they mean for its run."""

import secrets
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from sparktrain.base.clock import SystemClock
from sparktrain.config.backends import Backend
from sparktrain.config.call_option import part, settled
from sparktrain.config.gang_options import MemberKeywords
from sparktrain.config.gang_spec import ALONE, GangSpec
from sparktrain.config.metric_names import mode_of
from sparktrain.config.option_catalog import LaunchKeywords, RunKeywords
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.backend_choice import Choice, check_imports, choose
from sparktrain.driver.forwarded_env import environment
from sparktrain.errors import SpecError
from sparktrain.usercode.framework_imports import FrameworkImports
from sparktrain.usercode.serialize import MOST_CODE_BYTES


class Options:
    """What a sweep and a run of one gang share: every option, checked, by its name in `config.option_catalog`."""

    place: ClassVar[str]
    """Where the caller wrote the parameters, for messages."""
    kind: ClassVar[Literal["sweep", "run"]]
    """What the call returns."""
    catalog: ClassVar[type[LaunchKeywords] | type[RunKeywords]]
    keywords: LaunchKeywords | RunKeywords

    def __init__(self, keywords: LaunchKeywords | RunKeywords | None = None, /, **options: Any) -> None:
        """The checked `keywords`, or `options` to check. Raises SpecError for one that breaks a rule of the catalog."""
        self.keywords = keywords or settled(self.catalog, options, self.kind)

    @property
    def search(self) -> LaunchKeywords | None:
        """The options of a search; None for a run, which trains the parameters that it gets."""
        return self.keywords if isinstance(self.keywords, LaunchKeywords) else None

    def gang(self) -> GangSpec:
        """What trains each trial; its backend counts only where `choice` is None. Raises SpecError."""
        keywords = self.keywords
        return GangSpec(
            local_steps=keywords.local_steps,
            hang_timeout_s=keywords.hang_timeout or GangSpec.hang_timeout_s,
            **self.members(),
        )

    def members(self) -> dict[str, Any]:
        """The fields of `GangSpec` about its members, and about what connects them. Raises SpecError."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Environment variables of trials; given ones override the driver's. Raises SpecError."""
        return environment(self.keywords.env, self.keywords.forward_env)

    def most_code(self) -> int:
        """Limit of the function's bytes with all that is sent with it. Raises SpecError."""
        limit = self.keywords.code_limit
        if limit > MOST_CODE_BYTES:
            raise SpecError(
                f"code_limit ({limit}) must be at most {MOST_CODE_BYTES} bytes: each agent gets them in one message; "
                "load data within the function, from files that executors can read"
            )
        return limit

    def choice(
        self,
        gang: GangSpec,
        imports: Callable[[], FrameworkImports],
        keras: Callable[[], tuple[str, str]],
        *,
        strategy: bool = False,
    ) -> Choice | None:
        """The backend of `gang` where none is named; None where one is, or none is needed.

        `imports` and `keras` look at the function, and return what `choose` takes. Raises SpecError for a strategy in a
        gang that averages weights, and for a function that imports other frameworks than the backend that is named.
        """
        if strategy and gang.local_steps is not None:
            raise SpecError(
                f"local_steps={gang.local_steps} with a function that makes a strategy of TensorFlow, which averages "
                "gradients by itself: leave local_steps out, or train by ctx.distribute(optimizer) in place of the "
                "strategy"
            )
        if gang.size == 1:
            return None
        if isinstance(self.keywords.backend, Backend):
            check_imports(gang, imports())
            return None
        return choose(gang, imports(), keras(), strategy=strategy)

    def _named(self, servers: bool = False) -> Backend:
        if isinstance(self.keywords.backend, Backend):
            return self.keywords.backend
        return Backend.TENSORFLOW if servers else ALONE.backend

    def limits(self) -> dict[str, Any]:
        """The fields of `SweepSpec` that only a sweep sets: what ends, stops and compares its trials."""
        return {}

    def spec(self, gang: GangSpec, slug: str) -> SweepSpec:
        """The specification of the run, with a name that starts with `slug` where none is given. Raises SpecError."""
        keywords = self.keywords
        return SweepSpec(
            name=f"{slug}-{SystemClock().stamp()}" if keywords.name is None else keywords.name,
            metric=keywords.metric,
            mode=mode_of(keywords.metric, keywords.mode),
            seed=secrets.randbelow(2**31) if keywords.seed is None else keywords.seed,
            timeout_s=keywords.timeout,
            start_timeout_s=keywords.start_timeout,
            max_retries=keywords.max_retries,
            gang=gang,
            gpus=keywords.gpus,
            gpu_memory=keywords.gpu_memory,
            notice=keywords.notice,
            member_options=part(MemberKeywords, keywords),
            recovers=self.kind == "run",
            **self.limits(),
        )


class SweepOptions(Options):
    """The options of `sweep` and `launch`."""

    place: ClassVar[str] = "the space"
    kind: ClassVar[Literal["sweep", "run"]] = "sweep"
    catalog = LaunchKeywords
    keywords: LaunchKeywords

    def members(self) -> dict[str, Any]:
        """See base class."""
        if (backend := self._named()) is Backend.PARAMETER_SERVER:
            raise SpecError(
                f"backend {backend.value!r} of a sweep: its gangs have no parameter servers; choose 'horovod' or "
                "'tensorflow', or train one gang by sparktrain.run(ps=1)"
            )
        return {"workers": self.keywords.workers_per_trial, "backend": backend}

    def limits(self) -> dict[str, Any]:
        """See base class."""
        keywords = self.keywords
        return {
            "trials": keywords.trials,
            "repeats": keywords.repeats,
            "folds": keywords.folds,
            "racing": keywords.racing,
            "trial_timeout_s": keywords.trial_timeout,
            "report_timeout_s": keywords.hang_timeout,
            "max_failures": keywords.max_failures,
            "stopper": keywords.stopper,
            "other_metrics": keywords.other_metrics,
            "constraints": keywords.constraints,
            "target": keywords.target,
            "plateau": keywords.plateau,
            "budget_s": keywords.budget,
        }


class RunOptions(Options):
    """The options of `run`."""

    place: ClassVar[str] = "params"
    kind: ClassVar[Literal["sweep", "run"]] = "run"
    catalog = RunKeywords
    keywords: RunKeywords

    def members(self) -> dict[str, Any]:
        """See base class."""
        keywords = self.keywords
        return {
            "workers": keywords.workers,
            "ps": keywords.ps,
            "ps_mode": keywords.ps_mode,
            "backup_workers": keywords.backup_workers,
            "evaluator": keywords.evaluator,
            "backend": self._named(bool(keywords.ps or keywords.evaluator)),
            "min_workers": keywords.min_workers,
            "standby": keywords.standby,
            "spread": keywords.spread,
        }
