"""The first stage of a run: all that can be wrong with its call is found here, before a session is touched."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import msgspec

from sparktrain.base.optional_packages import check_tensorboard
from sparktrain.base.spans import span
from sparktrain.cluster.preflight import check_installed
from sparktrain.cluster.token_renewer import has_ticket, wants_tokens
from sparktrain.config.backends import Backend
from sparktrain.config.environment import TENSORFLOW
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.option_catalog import ExtendKeywords, LaunchKeywords, ResumeKeywords, RunKeywords
from sparktrain.config.option_rules import CoordinatorPlace
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.config.tracking_options import URI_VARIABLE, TrackingKeywords
from sparktrain.datasets.manifest import MemberData
from sparktrain.driver.backend_choice import Choice, KerasUse, chosen_keras, expected_keras, keras_setting, needed_keras
from sparktrain.driver.continuation.program import FunctionProgram, StoredProgram
from sparktrain.driver.continuation.warm_start import WarmStart, checked
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import plan_data
from sparktrain.driver.options import Options
from sparktrain.driver.prepare.run_definition import RunDefinition, sampler_choice
from sparktrain.driver.tracking.mlflow_tracker import MLflowTracker
from sparktrain.driver.tracking.notice import NoticeSender
from sparktrain.errors import SpecError, UserError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.plan import Plan, spec_fields
from sparktrain.search.sampled_space import as_space, leaves_for
from sparktrain.search.sampler import AnsweringSampler
from sparktrain.search.space import Space
from sparktrain.search.space_json import to_document
from sparktrain.store.url import open_store
from sparktrain.usercode.target import Target


@dataclass(frozen=True, kw_only=True)
class ResumeRules:
    """What a call makes of a run that its directory has already."""

    unnamed: bool = False
    """The name is generated: it belongs to this call alone, changes where it is taken, and is never resumed."""
    seeded: bool = True
    """The user gave the seed; otherwise it is generated, and that of an existing run replaces it."""
    allow_changed: frozenset[str] = frozenset()
    retry_failed: bool = False
    extends: bool = False
    """The call gives a run that exists more trials, or a wider space."""
    succeeds: bool = False
    """This driver takes the place of a lost one of the same call, which has the same rules."""
    old_stops: frozenset[str] | None = None
    """The requests to stop that are of earlier calls; None for all that this driver finds at its start."""


@dataclass(frozen=True, kw_only=True)
class Observers:
    """What shows a run while it lasts."""

    progress: bool = True
    tensorboard: bool = False
    page: bool = False
    callbacks: tuple[Any, ...] = field(default=(), repr=False)
    """What learns about the run: objects with methods of `Callback`."""

    @classmethod
    def of(cls, keywords: LaunchKeywords | RunKeywords | ResumeKeywords | ExtendKeywords) -> Self:
        """Those that the options of a call ask for. Raises SpecError."""
        return cls(
            progress=keywords.progress,
            tensorboard=check_tensorboard(keywords.tensorboard),
            page=keywords.page,
            callbacks=callbacks_of(keywords, keywords.callbacks),
        )


@dataclass(frozen=True)
class CoordinatorRequest:
    """Where a call wants its coordinator."""

    place: CoordinatorPlace | None = None
    """None where the call names no place."""
    directory: str = ""
    """The directory of its runs as the caller wrote it."""


@dataclass(frozen=True, kw_only=True)
class SlotRequest:
    """The slots that a call asks for."""

    agents: int | None = None
    """Agents to start, of a run; None for as many as it needs."""
    concurrent: int | None = None
    """Most trials that train at a time, of a sweep; None where only the slots of the session limit them."""
    weight: float = 1.0
    """Its share, against the weights of other calls."""
    priority: int = 0
    """Calls of a higher one get slots first."""

    @classmethod
    def of(cls, keywords: LaunchKeywords | RunKeywords) -> Self:
        """Those that the options of a call ask for."""
        return cls(
            agents=keywords.agents if isinstance(keywords, RunKeywords) else None,
            concurrent=keywords.max_concurrent_trials if isinstance(keywords, LaunchKeywords) else None,
            weight=keywords.weight,
            priority=keywords.priority,
        )


@dataclass(frozen=True, kw_only=True)
class CheckedCall:
    """A call with options, a function and data that fit each other."""

    definition: RunDefinition
    resume_rules: ResumeRules = ResumeRules()
    observers: Observers = Observers()
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of trials, perhaps secrets: for agents only."""
    keras: KerasUse = field(default_factory=KerasUse)
    """The backend of Keras in its members."""
    choice: Choice | None = None
    """Of the backend, where the user names none."""
    coordinator: CoordinatorRequest = CoordinatorRequest()
    slots: SlotRequest = SlotRequest()
    notes: tuple[str, ...] = ()
    """What zygotes leave to trials, and what the call changes in a run that exists, for its first lines."""
    warm: WarmStart = field(default_factory=WarmStart)
    """The warm start that was asked for: read where the run is new, which the plan has from then on."""
    data: DataPlan = field(default_factory=DataPlan)
    """The datasets of this call; empty where the run directory alone describes them."""
    cache: MemberData = field(default_factory=MemberData)
    """Where the hosts of members cache datasets."""

    @property
    def agents(self) -> int | None:
        """See `SlotRequest`."""
        return self.slots.agents

    @property
    def concurrent(self) -> int | None:
        """See `SlotRequest`."""
        return self.slots.concurrent

    @cached_property
    def trials(self) -> int | None:
        """Number of trials of a run that has none yet, where that is known. Walks over the space."""
        cases = self.definition.count_cases()
        return None if cases is None else cases * self.definition.spec.replication.size

    @property
    def needs_session(self) -> bool:
        """Only the tokens of a Spark session give this process access to the store."""
        return wants_tokens(self.definition.store.address) and not has_ticket()

    def with_spec(self, spec: SweepSpec) -> Self:
        """The same with another specification, also in its plan."""
        return replace(self, definition=self.definition.with_spec(spec))

    def with_backend(self, choice: Choice) -> Self:
        """The same with a backend that was chosen for it."""
        spec = self.definition.spec
        if spec.gang.size > spec.gang.workers and choice.backend is not Backend.TENSORFLOW:
            return self  # with parameter servers there is no other: the roles differ too, and that is reported
        chosen = self.with_spec(replace(spec, gang=replace(spec.gang, backend=choice.backend)))
        return replace(chosen, choice=choice)


def _checked_spec(
    options: Options, gang: GangSpec, program: StoredProgram | FunctionProgram, space: Space
) -> SweepSpec:
    """The specification, for a function that takes the parameters. Raises UserError, and one for both problems."""
    try:
        spec = options.spec(gang, program.slug)
    except SpecError as problem:
        try:
            program.check(options.kind, space, options.place)
        except UserError as error:
            raise SpecError(f"{problem}; and {error}") from error
        raise
    program.check(options.kind, space, options.place)
    return spec


def compose(function: Callable[..., Any] | Target | StoredProgram, space: Any, options: Options) -> CheckedCall:
    """Check a call and its data, and pickle its function, unless it is a stored one. Raises UserError.

    Touches neither the run directory nor Spark, but for the schemas of DataFrames; blocks on the stores of data files.
    """
    program = function if isinstance(function, StoredProgram) else FunctionProgram(function)
    trial_space = as_space(space)
    keywords = options.keywords
    search = options.search
    gang = options.gang()
    env = options.environment()
    choice = _choice(options, gang, program, env)
    gang = gang if choice is None else replace(gang, backend=choice.backend)
    spec = _checked_spec(options, gang, program, trial_space)
    keras = _keras_use(gang, program, env, named=choice is None)
    check_installed(spec.gang)
    leaves_for(trial_space, spec.stopper)
    sampler_name, warm = _check_search(search, trial_space, spec)
    store = open_store(StoreAddress(keywords.dir, timeout_s=keywords.store_timeout))
    data = plan_data(keywords.data, keywords.store_timeout, gang.workers, keywords.data_version)
    check_streams(gang, data)
    with span("pack"):
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
    return CheckedCall(
        definition=RunDefinition(
            plan=plan,
            spec=spec,
            space=trial_space,
            code=packed.code,
            store=store,
            layout=RunLayout(spec.name),
            sampler=None if search is None else search.sampler,
        ),
        resume_rules=ResumeRules(
            unnamed=keywords.name is None,
            seeded=keywords.seed is not None,
            allow_changed=frozenset(keywords.allow_changed),
            retry_failed=keywords.retry_failed,
        ),
        observers=Observers.of(keywords),
        env=env,
        keras=keras,
        choice=choice,
        coordinator=CoordinatorRequest(keywords.coordinator, keywords.dir),
        slots=SlotRequest.of(keywords),
        notes=packed.notes,
        warm=warm,
        data=data,
        cache=MemberData(cache_dir=_absolute(keywords.data_cache), cache_bytes=keywords.data_cache_limit),
    )


def check_streams(gang: GangSpec, data: DataPlan) -> None:
    """Raises SpecError for a stream beside processes that wait for the loss of a member."""
    if gang.standby and data.streams:
        raise SpecError(
            f"standby={gang.standby} with the stream {next(iter(data.streams))!r}: the gang of a stream restarts after "
            "a loss, and no process that waits could join it; leave standby out"
        )


def _choice(
    options: Options, gang: GangSpec, program: FunctionProgram | StoredProgram, env: Mapping[str, str]
) -> Choice | None:
    """The backend that the run chooses for its gangs: see `Options.choice`."""
    return options.choice(
        gang,
        lambda: program.imports,
        lambda: keras_setting(program.keras_choice, env),
        strategy=gang.size > 1 and program.makes_strategy(),
    )


def _keras_use(
    gang: GangSpec, program: FunctionProgram | StoredProgram, env: Mapping[str, str], *, named: bool
) -> KerasUse:
    """The backend of Keras in a gang with a backend that the user has `named`, or not. Raises SpecError."""
    # The members of a gang average by one framework: one that asked Keras for JAX once trained on TensorFlow unnoticed.
    chosen = chosen_keras(program.keras_choice, gang, env, program.uses_keras)
    expected = expected_keras(program.keras_choice, env, program.uses_keras)
    needs_own = named and gang.keras_backend not in ("", TENSORFLOW)
    needed = needed_keras(gang, program.imports, chosen or expected[0]) if needs_own else ""
    return KerasUse(chosen, expected, needed)


def _check_search(search: LaunchKeywords | None, space: Space, spec: SweepSpec) -> tuple[str, WarmStart]:
    """The name of the sampler, and the warm start. Raises SpecError for a sampler that does not fit the space."""
    chosen = sampler_choice(None if search is None else search.sampler, spec)
    name = chosen.name(space)
    sampler = chosen.sampler(space)  # made here as well because a condition of the space may raise
    if isinstance(sampler, AnsweringSampler) and spec.replication.size > 1:
        raise SpecError(
            f"repeats ({spec.repeats}) and folds ({spec.folds}) must be 1 with a study: its objective asks for its "
            "parameters in each trial, so no two trials have the same; use sparktrain.sweep with a space"
        )
    return name, checked(None if search is None else search.warm_start, space, spec, sampler, name)


def _absolute(directory: str | None) -> str | None:
    """The directory for all processes of a host: each trial has a working directory of its own."""
    return None if directory is None else os.path.abspath(os.path.expanduser(directory))


def callbacks_of(keywords: TrackingKeywords, callbacks: Sequence[Any]) -> tuple[Any, ...]:
    """The objects that learn about a run: `callbacks`, and what its options ask for. Raises SpecError."""
    chosen_callbacks = list(callbacks)
    if (options := keywords.tracking) is not None:
        chosen_callbacks.append(MLflowTracker(options, options.address(os.environ.get(URI_VARIABLE, ""))))
    if keywords.notify is not None:
        chosen_callbacks.append(NoticeSender(keywords.notify, keywords.notify_after))
    return tuple(chosen_callbacks)
