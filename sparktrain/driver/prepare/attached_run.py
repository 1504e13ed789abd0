"""The second stage of a run: what its directory has of it, which is read and not yet changed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import msgspec

from sparktrain.base.clock import SystemClock
from sparktrain.cluster import preflight
from sparktrain.cluster.token_renewer import TokenKeeper
from sparktrain.config.backends import Backend
from sparktrain.config.environment import KERAS_BACKEND
from sparktrain.config.versions import REPORTED, installed_versions
from sparktrain.driver.backend_choice import HOROVOD, check_needed_keras, check_reported_keras
from sparktrain.driver.continuation.warm_start import resumed_plan
from sparktrain.driver.data.run_data import changes_of, missing
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.errors import RunDirectoryError
from sparktrain.protocol.messages import Code
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.runs import plan as plans
from sparktrain.runs.history import StoredRun, check_alone, look, this_driver
from sparktrain.runs.plan import Plan, WarmPlan, check_unchanged
from sparktrain.state.records import DriverStarted
from sparktrain.state.trial import TrialStatus
from sparktrain.usercode.code_changes import differences


@dataclass(frozen=True, kw_only=True)
class AttachedRun:
    """A checked call beside the run that its directory has, if any."""

    call: CheckedCall
    """The call, with what it leaves open taken from the plan of that run."""
    stored_run: StoredRun | None = None
    """The run in the directory; None where the run is new."""
    retry_failed: bool = False
    replaces: bool = False
    """YARN, or an agent, has started this driver for the same call, in place of the last owner of the run."""
    tokens: TokenKeeper | None = None
    """Delegation tokens for the store, where agents need some."""
    local: bool = False
    """Its agents are processes of this machine, without Spark."""

    @cached_property
    def definition(self) -> RunDefinition:
        """What the run is."""
        return self.call.definition

    @cached_property
    def cases(self) -> int | None:
        """Number of sets of parameters, where that is known. Walks over the space; raises where a condition does."""
        return self.definition.count_cases(self.stored_run)

    @property
    def trials(self) -> int | None:
        """Number of trials, as `cases`."""
        return None if self.cases is None else self.cases * self.definition.spec.replication.size

    @property
    def driver_started(self) -> DriverStarted:
        """The journal's record of a driver that becomes the owner."""
        plan = self.definition.plan
        return DriverStarted(
            plan=plan.digest,
            space=plan.space_digest,
            at=SystemClock().wall(),
            retry_failed=self.retry_failed,
            versions=installed_versions((*REPORTED, "pyspark", "numpy")),
            extends=self.call.resume_rules.extends,
            # `run.json` is written once: a run that was extended kept its first total, and status showed 6 of 3 trials.
            trials=self.trials,
            local=self.local,
            adopts=self.call.resume_rules.succeeds,
        )

    def waits_for_spark(self) -> bool:
        """Whether Spark jobs must write datasets before agents take the slots. Blocks on the store."""
        definition = self.definition
        frames = self.call.data.frames
        unwritten = missing(definition.documents, definition.store, definition.layout) if frames else ()
        return not set(frames).isdisjoint(unwritten)


def attach(call: CheckedCall, engine: Engine | None = None, driver: DriverIdentity | None = None) -> AttachedRun:
    """Look at the directory of a run, with the tokens of `engine`. Blocks on the store; writes nothing but a probe.

    Raises RunDirectoryError when the directory cannot be used, or another driver than `driver` owns the run;
    ResumeError when it has another run than this one.
    """
    definition = call.definition
    store = definition.store
    # The tokens come first: without them a store that needs Kerberos refuses the probe.
    tokens = None if engine is None else engine.tokens(store.address)
    local = engine is not None and not engine.runs_jobs
    # Probe first: a store that ignores conditional writes, or drops their marks, would let two drivers own one run.
    store.probe()
    stored_run = None if call.resume_rules.unnamed else look(store, definition.layout)
    if stored_run is None:
        warm_plan = call.warm.read(definition.where)
        run = AttachedRun(call=_with_warm(call, warm_plan), retry_failed=call.resume_rules.retry_failed)
    else:
        run = _resumed(call, stored_run, driver or this_driver())
    return replace(run, tokens=tokens, local=local)


def _resumed(call: CheckedCall, stored_run: StoredRun, driver: DriverIdentity) -> AttachedRun:
    """The run that `driver` resumes. Raises as `attach`."""
    before = stored_run.plan
    rules = call.resume_rules
    if not rules.succeeds:  # the agent that has started this driver knows that the last one is lost
        check_alone(stored_run, call.definition.store, call.definition.layout, driver)
    replaces = rules.succeeds or (stored_run.driver is not None and driver.replaces(stored_run.driver))
    resumed = _as_started(call, before)
    # a failed function would fail once more: a retry is with the corrected code
    allow = rules.allow_changed | ({"code"} if rules.retry_failed else frozenset())
    allow |= frozenset() if stored_run.ever_started else {"data"}  # no trial has seen any: its write has failed
    code_lines = partial(_code_lines, resumed.definition, before)
    data_lines = partial(_data_lines, resumed, before)
    count_failed = partial(_count_failed, stored_run)
    check_unchanged(before, resumed.definition.plan, call.definition.where, allow, code_lines, count_failed, data_lines)
    return AttachedRun(
        call=resumed,
        stored_run=stored_run,
        # The replaced driver has retried them: one `retry_failed` must not run failed trials twice.
        retry_failed=rules.retry_failed and not (replaces and stored_run.retried),
        replaces=replaces,
    )


def _count_failed(stored_run: StoredRun) -> int:
    return len([trial for trial in stored_run.sweep().trials.values() if trial.status is TrialStatus.FAILED])


def _as_started(call: CheckedCall, before: Plan) -> CheckedCall:
    """The same with options that were not given taken from the plan of the existing run."""
    gang = before.spec["gang"]
    if call.choice is not None and gang["workers"] + gang["ps"] + gang["evaluator"] > 1:
        call = call.with_backend(call.choice.resumed(Backend(gang["backend"])))
    # The results of former runs may have changed or be gone: a resumed run knows what it started with.
    before_warm = None if before.warm is msgspec.UNSET else before.warm
    call = _with_warm(call, resumed_plan(before_warm, call.warm, call.definition.where))
    call = replace(call, definition=call.definition.with_plan(origin=before.origin, refit=before.refit))
    if call.resume_rules.seeded:
        return call
    return call.with_spec(replace(call.definition.spec, seed=before.spec["seed"]))


def _with_warm(call: CheckedCall, warm: WarmPlan | None) -> CheckedCall:
    return replace(call, definition=call.definition.with_plan(warm=warm or msgspec.UNSET))


def _code_lines(definition: RunDefinition, before: Plan) -> list[str]:
    """What has changed in the code. Blocks on the store."""
    try:
        code = plans.read_code(definition.store, definition.layout, before.code)
    except RunDirectoryError:  # without it the names of parts are still reported
        code = Code(before.code, b"")
    plan = definition.plan
    return differences((before.parts, plan.parts), (before.text, plan.text), (code, definition.code))


def _data_lines(call: CheckedCall, before: Plan) -> list[str]:
    """Which files of the data have changed. Blocks on the store."""
    documents = {} if before.data is msgspec.UNSET else before.data
    return changes_of(documents, call.data, call.definition.store, call.definition.layout)


def with_known_backend(run: AttachedRun, reported: Callable[[], dict[str, str]], *, inherits: bool) -> AttachedRun:
    """The run with a backend that its agents have; `reported` is what the first one reports, and may block.

    Raises ResourceError where they lack that of the run, and SpecError where Keras has another backend there.
    """
    spec = run.definition.spec
    preflight.check_executors(spec.gang, lambda package: package in reported())
    keras = run.call.keras
    if (keras.expected[0] or keras.needed) and not inherits:
        backend = reported().get(KERAS_BACKEND, "")
        check_reported_keras(keras.expected, backend)
        check_needed_keras(spec.gang, keras.needed, backend)
    choice = run.call.choice
    if choice is None or not choice.tentative:
        return run
    return replace(run, call=run.call.with_backend(choice.settled(HOROVOD in reported())))
