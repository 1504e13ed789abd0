"""The result of a trial, and how it follows from the state of the trial."""

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sparktrain.base import formatting
from sparktrain.base.boundary import users_call
from sparktrain.base.ids import CHIEF, Generation, Member, Rank, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.errors import MissingFileError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.exported_model import find_model, newest_process
from sparktrain.runs.flat_params import flat
from sparktrain.runs.result_card import card_html
from sparktrain.runs.run_files import RunFiles
from sparktrain.state.outcome import Failure, Restart
from sparktrain.state.trial import NOT_FORMED, Exploit, Trial, TrialStatus
from sparktrain.store.base import Store

if TYPE_CHECKING:
    import pandas as pd

FAILED_OR_LOST = (TrialStatus.FAILED, TrialStatus.LOST)
"""The statuses of trials that ended with an error."""


@dataclass(frozen=True, kw_only=True)
class MemberResult:
    """One member of the newest gang of a trial."""

    rank: int
    role: Role
    host: str | None
    log: str
    exported: str = ""
    """SHA-256 of the description of the model that the chief exported; empty without one, for models of Keras, and
    where an older sparktrain has run the trial."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TrialResult:
    """The end of one trial."""

    id: TrialId
    params: dict[str, Any]
    status: TrialStatus
    """`succeeded`, `failed` (the training function's own fault), `lost` (the cluster's), `pruned` (by a rule of
    `stopper=`) or `stopped`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics that the training function returned; of a pruned trial that returned none, the metric at the step
    that it was judged by; else empty."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What the function returned beside numbers, in JSON's own types: texts, None, lists and dicts within bounds; of
    other objects the name of their type."""
    seconds: float = 0.0
    """How long the training function ran in its newest generation."""
    error: Failure | None = None
    """The root cause, unless it succeeded."""
    generations: int = 0
    """How many times its gang has started."""
    members: tuple[MemberResult, ...] = ()
    """The members of its newest gang, by rank; none when it never ran."""
    restarts: tuple[Restart, ...] = ()
    """Why its gang restarted, and what that cost; oldest first."""
    exploits: tuple[Exploit, ...] = ()
    """The trials that it has taken over in population based training, oldest first, with its parameters from there on;
    `params` are the last ones."""
    unsaved: str = ""
    """Why its last save did not become a checkpoint; empty when it did, or nothing was saved."""
    pruned: str = ""
    """The rule that stopped the trial, and what it compared, in one line; empty unless its status is `pruned`."""
    notices: tuple[str, ...] = ()
    """What the user should know about the training, such as data that was not sharded; one line each."""
    notes: tuple[str, ...] = ()
    """What users have written about it, by `note` or `sparktrain note`, the oldest first, when the result was read."""
    tags: tuple[str, ...] = ()
    """Its tags, by `tag` or `sparktrain tag`."""
    case: int | None = None
    """The number of its set of parameters, in a sweep with repeats or folds; else None."""
    repeat: int = 0
    """Which repeat of these it is."""
    fold: int = 0
    """Which fold of the data it has left out."""

    _files: ClassVar[RunFiles | None] = None
    """The files of its run; the result of the run sets them."""

    @property
    def log(self) -> str | None:
        """The path of the log of the chief's newest generation; None when it never ran."""
        return self.members[0].log if self.members else None

    @property
    def exported(self) -> str:
        """What the run has a record of where its chief has exported an estimator: see `MemberResult`."""
        return self.members[0].exported if self.members else ""

    @property
    def host(self) -> str | None:
        """The host of the chief's newest generation."""
        return self.members[0].host if self.members else None

    @property
    @users_call
    def history(self) -> "pd.DataFrame":
        """What the trial reported, one row for each step: `SweepResult.history` has the columns.

        Blocks on the store. Raises RunDirectoryError for reports that are corrupt, OSError when the store fails.
        """
        return self._stored().history(self.id)

    @users_call
    def read_log(self, rank: int = 0, generation: int | None = None, tail: int | None = None) -> str:
        """What the trial printed, as text: by default all output of the chief of its newest generation.

        Args:
            rank: of the member; 0 is the chief.
            generation: counts the starts of the trial from 1; by default the newest.
            tail: return only this many lines, the last ones.

        Blocks on the store. Raises MissingFileError, which names the logs that exist, and OSError when the store
        fails.
        """
        return self._stored().log(self.id, self.generations if generation is None else generation, rank, tail)

    @property
    @users_call
    def model_path(self) -> str | None:
        """Where the model is that the chief of the newest generation exported; None when it exported none.

        Blocks on the store. Raises RunDirectoryError when its description was changed since, OSError when the store
        fails.
        """
        return self._stored().model_path(self.id, self.generations, self.exported)

    @users_call
    def load_model(self, **options: Any) -> Any:
        """The model that the trial exported by `ctx.export`, from any store, as its library loads it in this process.

        A model of Keras, or of XGBoost, an estimator of scikit-learn, a `Booster` of LightGBM; of a file or folder the
        path of a local copy, which is deleted when this process ends. `options` are those of the library:
        `custom_objects`, `compile` and `safe_mode` of `keras.saving.load_model`, `trusted` of `skops.io.load`, which
        may also be a function that decides by the full name of a type. Without `trusted`, the types of an estimator
        are trusted that the trial has exported, by the record of the run.

        An estimator that skops cannot store is a pickle, and runs the code in it: load it only from a directory that
        you trust. Blocks on the store and on the local disk. Raises MissingFileError when the trial exported no model,
        RunDirectoryError when its file was changed since, SpecError when its library is not installed or the run has no
        record of types that skops does not trust, OSError when the store fails, and what the library raises.
        """
        process = self.id, self.generations
        return self._stored().load_model(*process, options, record=self.exported, otherwise=self.no_model)

    @property
    def no_model(self) -> str:
        """Why the trial exported no model, and what to do, for messages."""
        if self.status is TrialStatus.SUCCEEDED:
            return "call ctx.export(model) at the end of the training function; checkpoints hold weights alone"
        why = "" if self.error is None else f" ({self.error.summary})"
        step = "see its log" if self.status.final else "wait for its end, or see its log"
        return f"its status is {self.status}{why}, and it has exported none; {step}{f' {self.log}' if self.log else ''}"

    @users_call
    def note(self, text: str) -> None:
        """Add a note of at most 2,000 characters to the trial, in its run directory. The run may last or have ended.

        `notes` of this object has it, and so have results that are loaded later. Blocks on the store. Raises SpecError
        for what is no text, OSError when the store fails.
        """
        added = self._stored().add_label(self.id, "note", text)
        object.__setattr__(self, "notes", (*self.notes, added))

    @users_call
    def tag(self, tag: str) -> None:
        """Add a tag of at most 100 characters to the trial: as `note`. A tag that it has changes nothing."""
        if (added := self._stored().add_label(self.id, "tag", tag)) not in self.tags:
            object.__setattr__(self, "tags", (*self.tags, added))

    @users_call
    def untag(self, tag: str) -> None:
        """Remove a tag of the trial: as `note`. One that it does not have changes nothing."""
        removed = self._stored().add_label(self.id, "untag", tag)
        object.__setattr__(self, "tags", tuple(stored_tag for stored_tag in self.tags if stored_tag != removed))

    def _stored(self) -> RunFiles:
        if self._files is None:
            raise MissingFileError(
                f"trial {self.id} belongs to no run directory, so it has no history, logs or model: use the trials of "
                "a result, or of sparktrain.load(directory)"
            )
        return self._files

    def __repr__(self) -> str:
        parts = [f"id={self.id}", f"status={self.status.value!r}", f"params={self.params!r}"]
        if self.metrics:
            parts.append(f"metrics={self.metrics!r}")
        if self.error is not None:
            parts.append(f"error={self.error.summary!r}")
        return f"TrialResult({', '.join(parts)}, seconds={self.seconds:.3g})"

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = {"took": formatting.duration(self.seconds), "host": self.host, "log": self.log}
        facts |= {"restarts": len(self.restarts)} if self.restarts else {}
        return card_html(
            f"Trial {self.id}: {self.status.value}",
            {
                "Metrics": self.metrics,
                "Parameters": flat(self.params),
                "Facts": {name: value for name, value in facts.items() if value},
            },
            (self.error.summary if self.error is not None else "", self.pruned, *self.notices, self.unsaved),
        )


class RunContext(Protocol):
    """What a run must do, and where its files are."""

    @property
    def spec(self) -> SweepSpec:
        """The specification of the run."""
        ...

    @property
    def store(self) -> Store:
        """The store that has its files."""
        ...

    @property
    def layout(self) -> RunLayout:
        """The paths of the files of the run."""
        ...


def result_of(trial: Trial, context: RunContext) -> TrialResult:
    """The result of a trial, so far when its status is not final yet."""
    shape = context.spec.replication
    replica = shape.replica(trial.id)
    return TrialResult(
        id=trial.id,
        params=trial.params,
        status=trial.status,
        metrics=trial.metrics,
        extra=trial.outcome.extra,
        seconds=trial.outcome.seconds,
        error=trial.failure,
        generations=trial.generation,
        members=_member_results(trial, context),
        restarts=trial.restarts,
        exploits=trial.takeover.exploits,
        unsaved=trial.checkpoints.unsaved,
        pruned=trial.pruning.reason if trial.pruning is not None else "",
        notices=trial.outcome.notices,
        case=shape.case(trial.id) if shape.size > 1 else None,
        repeat=replica.repeat,
        fold=replica.fold,
    )


def _member_results(trial: Trial, context: RunContext) -> tuple[MemberResult, ...]:
    """The members of its newest gang; none when it never had one."""
    if trial.generation == NOT_FORMED:
        return ()
    members = []
    # Not strict: a gang that has shrunk has fewer hosts than roles.
    for rank, (role, host) in enumerate(zip(context.spec.gang.roles(), trial.attempt.hosts or (None,), strict=False)):
        again = trial.restart_history.incarnation(rank)
        member = Member(RunId(context.spec.name), trial.id, trial.generation, Rank(rank), again)
        log = context.store.where(context.layout.member(member).log)
        exported = trial.outcome.exported if rank == CHIEF else ""
        members.append(MemberResult(rank=rank, role=role, host=host, log=log, exported=exported))
    return tuple(members)


def model_of(store: Store, layout: RunLayout, trial: TrialResult | None) -> str | None:
    """The path of the model that the chief of the newest gang exported; None without one. Blocks on the store."""
    if trial is None or trial.status is not TrialStatus.SUCCEEDED:
        return None
    chief = Member(RunId(layout.path), trial.id, Generation(trial.generations), CHIEF)
    model = find_model(store, newest_process(store, layout, chief))
    return None if model is None else store.where(model.path)


def stored_in(trial: TrialResult, files: RunFiles | None) -> TrialResult:
    """The same result, with its files there."""
    if trial._files is files:
        return trial
    # A copy, for the trial may be in another result that has files elsewhere.
    placed = copy(trial)
    object.__setattr__(placed, "_files", files)
    return placed
