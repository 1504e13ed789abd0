"""From a call of the user, or from what a run directory holds, to a run that is ready to start.

All that can be wrong with the call is found here, before a session is touched.
"""

import logging
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import msgspec

from sparktrain.board.board import check_tensorboard
from sparktrain.clock import SystemClock
from sparktrain.cluster.preflight import check_installed
from sparktrain.cluster.token_renewer import TokenKeeper, has_ticket, wants_tokens
from sparktrain.config.environment import variables
from sparktrain.config.gang_spec import Backend
from sparktrain.config.option_catalog import ExtendKeywords, ResumeKeywords
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.config.versions import REPORTED, installed_versions
from sparktrain.datasets.manifest import MemberData
from sparktrain.driver.backend_choice import Choice, chosen_keras
from sparktrain.driver.callbacks.callback_choice import callbacks_of
from sparktrain.driver.continuation.enqueued_sampler import EnqueuedSampler
from sparktrain.driver.continuation.extension import Extension
from sparktrain.driver.continuation.first_checkpoint import first_records
from sparktrain.driver.continuation.program import FunctionProgram, StoredProgram
from sparktrain.driver.continuation.warm_start import WarmStart, checked, resumed_plan, with_warm_start
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import changes_of, missing, plan_data, write_data
from sparktrain.driver.options import Options
from sparktrain.driver.run_request import RunRequest, Watcher
from sparktrain.driver.sampler_thread import guarded_aside
from sparktrain.errors import DeposedError, ResumeError, RunDirectoryError, SpecError
from sparktrain.protocol.messages import Code
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.rundir.journal.writer import DriverIdentity, Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import plan as plans
from sparktrain.runs.additions.enqueued import pending
from sparktrain.runs.history import StoredRun, check_alone, look, past, past_answers, this_driver
from sparktrain.runs.locate import run_in
from sparktrain.runs.plan import Plan, WarmPlan, check_unchanged, spec_fields
from sparktrain.search.any_space import as_space
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.leaves import leaves_for
from sparktrain.search.named_samplers import SamplerChoice, stored_choice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampler import AnsweringSampler, Sampler
from sparktrain.search.space import Space
from sparktrain.search.space_json import from_document, to_document
from sparktrain.state.ending import Ending
from sparktrain.state.records import DriverStarted, RunEnded
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from sparktrain.usercode.code_changes import differences
from sparktrain.usercode.target import Target

logger = logging.getLogger("sparktrain")

NAMES = 16
"""Number of other names to try where the generated one is taken: each ends in four random hexadecimal digits."""


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that only lacks agents."""

    plan: Plan
    spec: SweepSpec
    space: Space
    code: Code
    store: Store
    layout: RunLayout
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of trials, perhaps secrets: for agents only."""
    keras: str = ""
    """The backend of Keras that the function of a gang chooses."""
    choice: Choice | None = None
    """Of the backend, where the user names none."""
    unnamed: bool = False
    """The name is generated: it belongs to this call alone, changes where it is taken, and is never resumed."""
    seeded: bool = True
    """The user gave the seed; otherwise it is generated, and that of an existing run replaces it."""
    allow_changed: frozenset[str] = frozenset()
    retry_failed: bool = False
    local: bool = False
    """Its agents are processes of this machine, without Spark."""
    tensorboard: bool = False
    page: bool = False
    """TensorBoard is served while the run lasts."""
    callbacks: tuple[Any, ...] = field(default=(), repr=False)
    """What learns about the run: objects with methods of `Callback`."""
    sampler: Any = None
    """The sampler that was asked for: a name, an object, or None."""
    extends: bool = False
    """The call gives a run that exists more trials, or a wider space."""
    notes: tuple[str, ...] = ()
    """What the call changes in a run that exists, for its first lines."""
    warm: WarmStart = field(default_factory=WarmStart)
    """The warm start that was asked for: read where the run is new, which the plan has from then on."""
    stored_run: StoredRun | None = None
    """The run's data in the run directory, once it was read."""
    tokens: TokenKeeper | None = None
    """Delegation tokens for the store, where agents need some."""
    concurrent: int | None = None
    """Most trials that train at a time, of a sweep; None where only the slots of the session limit them."""
    data: DataPlan = field(default_factory=DataPlan)
    """The datasets of this call; empty where the run directory alone describes them."""
    datasets: MemberData = field(default_factory=MemberData)
    """Where members find the datasets, once they are written."""
    claimed: tuple[Journal, JournalContents] | None = field(default=None, repr=False)
    """The journal of the run, once this driver owns it."""
    replaces: bool = False
    """YARN has started this driver for the same call, in place of the last owner of the run."""

    @cached_property
    def trials(self) -> int | None:
        """Number of trials, where that is known. Walks over the space; raises where a condition does."""
        return None if self.cases is None else self.cases * self.spec.replication.size

    @cached_property
    def cases(self) -> int | None:
        """Number of sets of parameters, as `trials`."""
        sampler = self._sampler()
        if isinstance(sampler, SpaceSampler) and self.stored_run is not None:
            sampler.restore(past(self.stored_run.opened.records, self.spec.metric))
        return sampler.total

    @property
    def where(self) -> str:
        """The run directory, for display."""
        return self.store.where(self.layout.path)

    @property
    def driver_started(self) -> DriverStarted:
        """The journal's record of a driver that becomes the owner."""
        return DriverStarted(
            plan=self.plan.digest,
            space=self.plan.space_digest,
            at=SystemClock().wall(),
            retry_failed=self.retry_failed,
            versions=installed_versions((*REPORTED, "pyspark", "numpy")),
            extends=self.extends,
            trials=self.trials,
            local=self.local,
        )

    @property
    def documents(self) -> dict[str, Any]:
        """The descriptions of the datasets that the run has."""
        return {} if self.plan.data is msgspec.UNSET else self.plan.data

    def waits_for_spark(self) -> bool:
        """Whether Spark jobs must write datasets before agents take the slots. Blocks on the store."""
        frames = self.data.frames
        return bool(frames) and bool(set(frames) & set(missing(self.documents, self.store, self.layout)))

    def owned(self, driver: DriverIdentity) -> "PreparedRun":
        """The same once `driver` owns the run: others find it in the journal. Blocks on the store; raises OSError.

        A run that starts from the checkpoint of another one has a copy then, as its first checkpoint.
        """
        seeds = first_records(self.plan, self.space, self.store, self.layout, self.stored_run)
        journal, contents = self._claim(driver)
        if seeds and not contents.records:
            journal.append(seeds)
            contents = msgspec.structs.replace(contents, records=seeds)
        return replace(self, claimed=(journal, contents))

    def give_back(self, reason: str) -> None:
        """Record that this driver ends the run before it started: any driver may have it. Blocks on the store."""
        assert self.claimed is not None
        journal, _ = self.claimed
        try:
            journal.append([RunEnded(ending=Ending.UNPREPARED, reason=reason)])
        except (OSError, DeposedError) as error:
            logger.debug("run %s stays with this driver: %s", self.spec.name, error)

    def with_data(self, show: Callable[[str], None]) -> "PreparedRun":
        """The same once every dataset is written; `show` gets lines about it. Blocks on the store and Spark's jobs.

        Raises DataError, also for fewer rows than members, ResumeError where a dataset is missing and has no source
        here, OSError.
        """
        data_refs = write_data(self.data, self.documents, self.store, self.layout, show, self.spec.gang.workers)
        return replace(self, datasets=msgspec.structs.replace(self.datasets, sets=data_refs))

    @property
    def needs_session(self) -> bool:
        """Only the tokens of a Spark session give this process access to the store."""
        return wants_tokens(self.store.address) and not has_ticket()

    def authorized(self, tokens: Callable[[StoreAddress], TokenKeeper | None]) -> "PreparedRun":
        """The same with the tokens that its engine has for its store. Blocks for 30 s at most."""
        return replace(self, tokens=tokens(self.store.address))

    def attached(self, driver: DriverIdentity | None = None) -> "PreparedRun":
        """The same with what its directory has of the run. Blocks on the store; writes nothing but a probe.

        Raises RunDirectoryError when the directory cannot be used, or another driver than `driver` owns the run;
        ResumeError when it has another run than this one.
        """
        # Probe first: a store that ignores conditional writes, or drops their marks, would let two drivers own one run.
        self.store.probe()
        stored_run = None if self.unnamed else look(self.store, self.layout)
        if stored_run is None:
            return self._with_warm(self.warm.read(self.where))
        current_driver = driver or this_driver()
        check_alone(stored_run, self.where, current_driver)
        replaces = stored_run.driver is not None and current_driver.replaces(stored_run.driver)
        resumed = self._as_started(stored_run.plan)
        failed = len([trial for trial in stored_run.sweep().trials.values() if trial.status is TrialStatus.FAILED])
        # a failed function would fail once more: a retry is with the corrected code
        allow = self.allow_changed | ({"code"} if self.retry_failed else frozenset())
        allow |= frozenset() if stored_run.ever_started else {"data"}  # no trial has seen any: its write has failed
        lines = partial(resumed._code_lines, stored_run.plan), partial(resumed._data_lines, stored_run.plan)
        check_unchanged(stored_run.plan, resumed.plan, self.where, allow, lines[0], failed, lines[1])
        # The replaced driver has retried them: one `retry_failed` must not run failed trials twice.
        again = self.retry_failed and not (replaces and stored_run.retried)
        return replace(resumed, stored_run=stored_run, retry_failed=again, replaces=replaces)

    def observed(self, keywords: ResumeKeywords | ExtendKeywords) -> "PreparedRun":
        """The same with the callbacks and the page that the options of its call ask for. Raises SpecError."""
        return replace(self, callbacks=callbacks_of(keywords, keywords.callbacks), page=keywords.page)

    def limited(self, concurrent: int | None, agents: int | None) -> "PreparedRun":
        """The same with the limit of the resuming call. Raises SpecError for one that its kind does not have."""
        kind, option = self.plan.kind, "agents" if self.plan.kind == "run" else "max_concurrent_trials"
        for name, value, of in (("max_concurrent_trials", concurrent, "sweep"), ("agents", agents, "run")):
            if value is not None and kind != of:
                raise SpecError(f"{name} ({value}) is for a {of}, and {self.where} holds a {kind}: pass {option}")
        return replace(self, concurrent=concurrent)

    def settled(self, has_horovod: bool) -> "PreparedRun":
        """The same with the backend that follows from whether executors have Horovod."""
        return self if self.choice is None else self._with_backend(self.choice.settled(has_horovod))

    def started(self) -> "PreparedRun":
        """The same once its directory has its `run.json`, which takes the name. Blocks on the store.

        Raises OSError; RunDirectoryError when another driver has started a run of that name since `attached`.
        """
        if not self.unnamed:
            if not self._take_name() and self.stored_run is None:
                raise RunDirectoryError(
                    f"run directory {self.where} is in use: another driver has started a run of this name at the same "
                    "time; wait for its end, or choose another name"
                )
            return self
        for candidate in (self, *(self._renamed(f"{self.spec.name}-{secrets.token_hex(2)}") for _ in range(NAMES))):
            if not self.store.exists(candidate.layout.spec) and candidate._take_name():
                return candidate
        raise RunDirectoryError(
            f"{self.where} and {NAMES} directories with names that start like that exist already: pass a name"
        )

    def work(self, agents: int, watcher: Watcher, driver: DriverIdentity) -> RunRequest:
        """The run for the coordinator; this driver becomes its owner, unless it is. Blocks on the store.

        Raises OSError.
        """
        journal, opened = self.claimed or self._claim(driver)
        for note in opened.notes:
            logger.warning("%s", note)
        warm = None if self.plan.warm is msgspec.UNSET else self.plan.warm
        base_sampler = self._sampler(max(1, agents // self.spec.gang.size))
        is_answering = isinstance(base_sampler, AnsweringSampler)
        if isinstance(base_sampler, AnsweringSampler):
            base_sampler.open(self.where, past_answers(opened.records))
        sampler = with_warm_start(base_sampler, warm)
        if self.plan.kind == "sweep" and not is_answering:
            requests = partial(pending, self.store, self.layout)
            sampler = EnqueuedSampler(sampler, self.space, requests, listed=self.plan.sampler is msgspec.UNSET)
        restore = partial(sampler.restore, past(opened.records, self.spec.metric))
        guarded_aside("given what earlier drivers had", restore, self.spec.timeout_s)
        return RunRequest(
            spec=self.spec,
            code=self.code,
            preload=self.plan.preload,
            sampler=sampler,
            store=self.store,
            layout=self.layout,
            total=None if sampler.total is None else sampler.total * self.spec.replication.size,
            agents=agents,
            watcher=watcher,
            journal=journal,
            records=opened.records,
            driver_started=self.driver_started,
            lookahead=0 if is_answering else 1,  # what a trial asks is answered once it runs
            tokens=self.tokens,
            env=self.env,
            leaves=leaves_for(self.space, self.spec.stopper),
            data=self.datasets,
        )

    def _claim(self, driver: DriverIdentity) -> tuple[Journal, JournalContents]:
        """Own the journal. A removal that has ended since `started` has deleted what that has put: put it once more."""
        # Claim, then look: a removal that was running has deleted `run.json`, and cannot delete anything after the
        # claim.
        journal, contents = Journal.claim(self.store, self.layout.journal, driver)
        if not self.store.exists(self.layout.spec):
            self._take_name()
        return journal, contents

    def _take_name(self) -> bool:
        """Store the plan, and `run.json` if absent; returns whether it was absent."""
        plans.write(self.store, self.layout, self.plan, self.code)
        overview = plans.overview(self.plan, str(self.space), self.trials, SystemClock().wall())
        return self.store.put_if_absent(self.layout.spec, overview)

    def _renamed(self, name: str) -> "PreparedRun":
        return replace(self.with_spec(replace(self.spec, name=name)), layout=RunLayout(name))

    def _as_started(self, before: Plan) -> "PreparedRun":
        """The same with options that were not given taken from the plan of the existing run."""
        prepared = self
        gang = before.spec["gang"]
        if self.choice is not None and gang["workers"] + gang["ps"] + gang["evaluator"] > 1:
            prepared = self._with_backend(self.choice.resumed(Backend(gang["backend"])))
        # The results of former runs may have changed or be gone: a resumed run knows what it started with.
        warm_plan = resumed_plan(None if before.warm is msgspec.UNSET else before.warm, self.warm, self.where)
        prepared = prepared._with_warm(warm_plan)
        prepared = replace(prepared, plan=msgspec.structs.replace(prepared.plan, origin=before.origin))
        return prepared if prepared.seeded else prepared.with_spec(replace(prepared.spec, seed=before.spec["seed"]))

    def _with_warm(self, warm: WarmPlan | None) -> "PreparedRun":
        return replace(self, plan=msgspec.structs.replace(self.plan, warm=warm or msgspec.UNSET))

    def _code_lines(self, before: Plan) -> list[str]:
        """What has changed in the code. Blocks on the store."""
        try:
            code = plans.read_code(self.store, self.layout, before.code)
        except RunDirectoryError:  # without it the names of parts are still reported
            code = Code(before.code, b"")
        return differences((before.parts, self.plan.parts), (before.text, self.plan.text), (code, self.code))

    def _data_lines(self, before: Plan) -> list[str]:
        """Which files of the data have changed. Blocks on the store."""
        return changes_of({} if before.data is msgspec.UNSET else before.data, self.data, self.store, self.layout)

    def _with_backend(self, choice: Choice) -> "PreparedRun":
        if self.spec.gang.size > self.spec.gang.workers and choice.backend is not Backend.TENSORFLOW:
            return self  # with parameter servers there is no other: the roles differ too, and that is reported
        prepared = self.with_spec(replace(self.spec, gang=replace(self.spec.gang, backend=choice.backend)))
        return replace(prepared, choice=choice)

    def with_spec(self, spec: SweepSpec) -> "PreparedRun":
        """The same with another specification, also in its plan."""
        return replace(self, spec=spec, plan=msgspec.structs.replace(self.plan, spec=spec_fields(spec)))

    def _sampler(self, slots: int = 1) -> Sampler:
        return sampler_choice(self.sampler, self.spec).sampler(self.space, slots)


def sampler_choice(sampler: Any, spec: SweepSpec) -> SamplerChoice:
    """What decides on the sampler of a run for which `sampler` was given."""
    goal = Goal(spec.metric, spec.mode == "max", spec.other_metrics, spec.constraints)
    return SamplerChoice(requested=sampler, trials=spec.trials, timeout_s=spec.timeout_s, seed=spec.seed, goal=goal)


def compose(function: Callable[..., Any] | Target | StoredProgram, space: Any, options: Options) -> PreparedRun:
    """Check a call and its data, and pickle its function, unless it is a stored one. Raises UserError.

    Touches neither the run directory nor Spark, but for the schemas of DataFrames; blocks on the stores of data files.
    """
    program = function if isinstance(function, StoredProgram) else FunctionProgram(function)
    trial_space = as_space(space)
    keywords = options.keywords
    search = options.search
    gang = options.gang()
    env = options.environment()
    choice = options.choice(gang, strategy=gang.size > 1 and program.makes_strategy())
    gang = gang if choice is None else replace(gang, backend=choice.backend)
    spec = options.spec(gang, program.slug)
    program.check(options.kind, trial_space, options.place)
    keras = chosen_keras(program.keras_choice, gang, env)
    check_installed(spec.gang)
    leaves_for(trial_space, spec.stopper)
    chosen = sampler_choice(None if search is None else search.sampler, spec)
    sampler_name = chosen.name(trial_space)
    sampler = chosen.sampler(trial_space)  # made here as well because a condition of the space may raise
    if isinstance(sampler, AnsweringSampler):
        _check_study(spec)
    warm = checked(None if search is None else search.warm_start, trial_space, spec, sampler, sampler_name)
    store = open_store(StoreAddress(keywords.dir, timeout_s=keywords.store_timeout))
    data = plan_data(keywords.data, keywords.store_timeout, gang.workers, keywords.data_version)
    packed = program.packed(spec.gang, env, options.most_code(), keywords.preload)
    plan = Plan(
        kind=options.kind,
        function=packed.name,
        code=packed.code.digest,
        parts=packed.parts,
        preload=tuple(packed.preload),
        space=to_document(trial_space, spec.trials),
        sampler=msgspec.UNSET if sampler_name == "grid" else sampler_name,
        data_version=keywords.data_version,
        data=dict(data.documents) or msgspec.UNSET,
        spec=spec_fields(spec),
        text=packed.text,
        env=tuple(sorted(env)),
    )
    return PreparedRun(
        plan=plan,
        spec=spec,
        space=trial_space,
        code=packed.code,
        store=store,
        layout=RunLayout(spec.name),
        env=env,
        keras=keras,
        choice=choice,
        unnamed=keywords.name is None,
        seeded=keywords.seed is not None,
        allow_changed=frozenset(keywords.allow_changed),
        retry_failed=keywords.retry_failed,
        tensorboard=check_tensorboard(keywords.tensorboard),
        page=keywords.page,
        callbacks=callbacks_of(keywords, keywords.callbacks),
        sampler=chosen.requested,
        warm=warm,
        concurrent=None if search is None else search.max_concurrent_trials,
        data=data,
        datasets=MemberData(cache_dir=_absolute(keywords.data_cache), cache_bytes=keywords.data_cache_limit),
    )


def _check_study(spec: SweepSpec) -> None:
    if spec.replication.size > 1:
        raise SpecError(
            f"repeats ({spec.repeats}) and folds ({spec.folds}) must be 1 with a study: its objective asks for its "
            "parameters in each trial, so no two trials have the same; use sparktrain.sweep with a space"
        )


def _absolute(directory: str | None) -> str | None:
    """The directory for all processes of a host: each trial has a working directory of its own."""
    return None if directory is None else os.path.abspath(os.path.expanduser(directory))


def compose_again(
    directory: str,
    retry_failed: bool = False,
    env: Mapping[str, str] | None = None,
    tensorboard: bool = False,
    extension: Extension | None = None,
) -> PreparedRun:
    """The run that a directory holds, to resume it as it was started, with `env` for its trials. Blocks on the store.

    With an `extension`, it has more trials or a wider space than it was started with; once, also where YARN starts the
    driver again.

    Raises RunDirectoryError when there is none, or it cannot be read; SpecError when its space was too large to store,
    or TensorBoard is wanted and not installed; ResumeError when trials lack variables that they were started with.
    """
    check_tensorboard(tensorboard)
    place = run_in(directory)
    store = place.store
    layout = place.layout
    stored_run = look(store, layout)
    if stored_run is None:
        raise RunDirectoryError(f"{directory} is no longer a run directory: its run.json was deleted")
    code = plans.read_code(store, layout, stored_run.plan.code)
    trial_env = variables(env or {})
    sampler = None if stored_run.plan.sampler is msgspec.UNSET else stored_choice(stored_run.plan.sampler)
    plan = stored_run.plan
    notes = tuple[str, ...]()
    # A driver that YARN starts again makes the same call: it would add the trials a second time.
    if extension is not None and stored_run.extended_before(this_driver()):
        extension = None
        notes = ("was extended by the driver that this one replaces",)
    if extension is None:
        spec = plan.sweep_spec()
        space = from_document(plan.space)
    else:
        spec, space, notes = extension.of(stored_run)
        sampler_choice(sampler, spec).sampler(space)  # raises where it cannot do so many trials, or this space
        plan = msgspec.structs.replace(plan, spec=spec_fields(spec), space=to_document(space, spec.trials))
    if missing := [name for name in stored_run.plan.env if name not in trial_env]:
        raise ResumeError(
            "the run was started with variables for its trials, and their values are not stored: pass "
            f"{', '.join(missing)} by env= (--env {missing[0]}, to take it from here)"
        )
    return PreparedRun(
        plan=plan, spec=spec, space=space, code=code, store=store, layout=layout, retry_failed=retry_failed,
        env=trial_env, tensorboard=tensorboard, sampler=sampler, notes=notes, extends=extension is not None,
        allow_changed=frozenset() if extension is None else frozenset({"space"}),
    )  # fmt: skip
