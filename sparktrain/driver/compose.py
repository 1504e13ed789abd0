"""From a call of the user to a run that is ready to start, and from its end to what the user gets.

All that can be wrong with the call is found here, before a session is touched.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparktrain.clock import SystemClock
from sparktrain.driver.options import Options
from sparktrain.driver.preflight import check_installed
from sparktrain.driver.report import to_bytes
from sparktrain.driver.results import SweepResult, status_of
from sparktrain.driver.run import RunEnd
from sparktrain.driver.shipping import pack, preload_for
from sparktrain.driver.signature import Target, check_call
from sparktrain.driver.work import Ran, Watcher, Work
from sparktrain.errors import FunctionError, RunDirectoryError, SpecError, UserError
from sparktrain.ids import Generation, Member, RunId
from sparktrain.protocol.messages import CHIEF, Code
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.space import Space, as_space
from sparktrain.spec.quantities import seconds
from sparktrain.spec.sweep import SweepSpec
from sparktrain.spec.values import described
from sparktrain.state.outcome import Failure
from sparktrain.state.sweep import Ending
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store
from sparktrain.store.layout import RunLayout
from sparktrain.store.url import open_store

DEFAULT_DIR = "sparktrain-runs"


@dataclass(frozen=True)
class Composed:
    """A run that only lacks agents."""

    spec: SweepSpec
    space: Space
    sampler: SpaceSampler
    target: Target
    code: Code
    preload: tuple[str, ...]
    store: Store
    layout: RunLayout

    @property
    def trials(self) -> int | None:
        """How many trials there will be, where that is known."""
        return self.sampler.total

    def work(self, agents: int, watcher: Watcher) -> Work:
        """The run for the coordinator; claims the run directory. Blocks on the store. Raises RunDirectoryError."""
        self.check_directory()
        if not self.store.put_if_absent(self.layout.spec, self._record()):
            raise self._taken()
        return Work(
            spec=self.spec,
            code=self.code,
            preload=self.preload,
            sampler=self.sampler,
            store=self.store,
            layout=self.layout,
            total=self.trials,
            agents=agents,
            watcher=watcher,
        )

    def check_directory(self) -> None:
        """Raises RunDirectoryError when the run directory cannot be written, or has a run. Blocks on the store."""
        self.store.probe()
        if self.store.exists(self.layout.spec):
            raise self._taken()

    def _taken(self) -> RunDirectoryError:
        where = self.store.where(self.layout.path)
        return RunDirectoryError(f"run directory {where} has a run already: choose another name or dir")

    def _record(self) -> bytes:
        spec = self.spec
        record = {
            "version": 1,
            "name": spec.name,
            "function": self.target.name,
            "code": self.code.digest,
            "parameters": list(self.space.names),
            "metric": spec.metric,
            "mode": spec.mode,
            "seed": spec.seed,
            "gang": asdict(spec.gang),
            "trials": self.trials,
            "begun": SystemClock().wall(),
        }
        return json.dumps(record, indent=2).encode()


def compose(function: Callable[..., Any] | Target, space: Any, options: Options) -> Composed:
    """Check a call, and pickle its function. Touches neither Spark nor the run directory. Raises UserError."""
    target = function if isinstance(function, Target) else Target.of(function)
    trial_space = as_space(space)
    spec = SweepSpec(
        name=options.name if options.name is not None else f"{target.slug}-{SystemClock().stamp()}",
        metric=options.metric,
        mode=options.mode,
        seed=options.seed if options.seed is not None else secrets.randbelow(2**31),
        timeout_s=seconds(options.timeout, "timeout"),
        start_timeout_s=seconds(options.start_timeout, "start_timeout") or 0.0,
        gang=options.gang(),
        gpus=options.gpus,
        log_limit_bytes=options.log_limit,
        **options.limits(),
    )
    check_call(target.function, trial_space, options.place)
    check_installed(spec.gang)
    store = open_store(options.dir if options.dir is not None else DEFAULT_DIR)
    preload = module_names(options.preload) if options.preload is not None else preload_for(target, spec.gang)
    sampler = SpaceSampler(trial_space, spec.trials)
    return Composed(spec, trial_space, sampler, target, pack(target), preload, store, RunLayout(spec.name))


def module_names(preload: Sequence[str]) -> tuple[str, ...]:
    """`preload` when it is a list of names. Raises SpecError."""
    if isinstance(preload, str) or not all(isinstance(name, str) for name in preload):
        raise SpecError(f"preload is {described(preload)}, a list of module names is expected; write preload=['numpy']")
    return tuple(preload)


def result(composed: Composed, ran: Ran) -> SweepResult:
    """What the user gets; written to `results.json`. Blocks on the store."""
    spec, stopped = composed.spec, ran.end.ending == Ending.STOPPED
    made = SweepResult(
        name=spec.name,
        status=status_of(ran.trials, stopped=stopped),
        metric=spec.metric,
        mode=spec.mode,
        seconds=ran.seconds,
        directory=composed.store.where(composed.layout.path),
        trials=ran.trials,
        reason=ran.end.reason or None,
    )
    composed.store.put_if_absent(composed.layout.results, to_bytes(made))
    return made


def run_end(composed: Composed, made: SweepResult) -> RunEnd:
    """The end of a run of one gang, from its result as a sweep. Blocks on the store."""
    trial = next(iter(made.trials), None)
    if trial is None or trial.status is not TrialStatus.SUCCEEDED:
        return RunEnd(made, None)
    chief = Member(RunId(made.name), trial.id, Generation(trial.generations), CHIEF)
    model = composed.layout.member(chief).model
    return RunEnd(made, composed.store.where(model) if composed.store.exists(model) else None)


def unloadable(composed: Composed, failure: Failure) -> UserError:
    """The error of a function that executors cannot load."""
    trace = f"\n{failure.traceback}" if failure.traceback else ""
    return FunctionError(f"{composed.target.name} cannot be loaded on executors: {failure.summary}{trace}")
