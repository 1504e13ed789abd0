"""All paths of a run, relative to the root of its store."""

import re
from typing import ClassVar, NamedTuple

from msgspec import Struct

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.errors import SpecError
from sparktrain.store.base import path_problem

_IN_RUN = re.compile(r"[^/]+(/trials/\d+/checkpoints/.+)", re.DOTALL)
_LONGEST_NAME_BYTES = 200
"""File systems allow 255; the rest is for suffixes such as `.tar.gz`."""

_MEMBER = re.compile(r"trials/(\d+)/generation-(\d+)/rank-(\d+)(?:-restart-(\d+))?/")
_PART = re.compile(r"(?:part|(block))-([0-9a-f]{8})-(\d+)-(\d+)\.(?:parquet|jsonl\.gz)")


_HEX = "[0-9a-f]"
_OWN_FILES = re.compile(
    rf"""
    run\.json | probe-{_HEX}{{32}} | results(?:-before-\d{{4,}})?\.json
    | plans/{_HEX}{{16}}\.json | code/{_HEX}{{16}}\.msgpack | boards/{_HEX}{{8}}\.json
    | (?:enqueued|labels|drains|stops)/\d{{13,}}-{_HEX}{{8}}\.json
    | coordinators/{_HEX}{{12}}/(?:
        call | end | application | (?:claim|address)-\d{{4,}} | heartbeat-\d{{4,}}-\d{{8,}}
        | client-\d{{8,}} | operation-[-0-9a-zA-Z]+
    )\.json
    | data/[^/]+-{_HEX}{{12}}/(?:manifest\.json|(?:table|\d{{5,}}-\d+)-{_HEX}{{8}}-\d+\.arrow)
    | feeds/[^/]+-{_HEX}{{8}}/(?:ended|\d{{10}}-\d{{10}})
    | journal/(?:term-\d{{4,}}|removal-\d{{4,}}|(?:batch|snapshot)-\d{{4,}}-\d{{8,}})
    | reports/(?:part-{_HEX}{{8}}-\d{{8,}}-\d{{8,}}\.parquet|block-{_HEX}{{8}}-\d{{8,}}-\d{{8,}}\.jsonl\.gz)
    | trials/\d{{4,}}/(?:
        checkpoints/gen-\d{{4,}}(?:-restart-\d+)?/(?:manifest-\d{{8,}}|data/\d{{8,}}-{_HEX}{{32}}\.[^/]+)
        | generation-\d+/rank-\d+(?:-restart-\d+)?/(?:
            log\.txt | model\.keras | steps\.msgpack | files/.+ | growing/.+/\d{{12,}}
        )
    )
    """,
    re.VERBOSE | re.DOTALL,
)
"""Every file that a run writes, relative to its folder: the properties and methods below, and what they are given."""
_OWN_FOLDERS = re.compile(
    rf"""
    (?:
        plans | code | boards | enqueued | labels | drains | stops | journal | reports
        | coordinators(?:/{_HEX}{{12}})?
        | data(?:/[^/]+-{_HEX}{{12}})? | feeds(?:/[^/]+-{_HEX}{{8}})?
        | trials(?:/\d{{4,}}(?:
            /checkpoints(?:/gen-\d{{4,}}(?:-restart-\d+)?(?:/data)?)?
            | /generation-\d+(?:/rank-\d+(?:-restart-\d+)?(?:/(?:files|growing)(?:/.+)?)?)?
        )?)?
    )/
    """,
    re.VERBOSE | re.DOTALL,
)

MODEL = "model.keras"
"""The Keras model that a member has exported, in its folder."""
STEPS = "steps.msgpack"
"""The times of a member's newest steps, in its folder."""
EXPORTED = "files/exported-model"
"""The folder with a model of another kind: it travels with the other files of the member."""


class ExportedModel(Struct, frozen=True, kw_only=True):
    """What is in the folder of an exported model: `NAME` there has it as JSON, and is there once the model is whole.

    The outcome of the member has the SHA-256 of that JSON, so that another description or another file is noticed.
    """

    NAME: ClassVar[str] = "sparktrain-model.json"

    kind: str
    """What loads it: `skops`, `joblib`, `xgboost`, `lightgbm`, `torch` (weights), `torch-program`, `torchscript`;
    `path` for a file or a folder of the user."""
    file: str
    """The name of its file or folder."""
    of: str = ""
    """The name of its class."""
    version: str = ""
    """Of its library."""
    sha256: str = ""
    """Of an estimator's file; empty for other models."""
    types: tuple[str, ...] = ()
    """The types in a file of skops that skops does not trust by itself."""


class MemberLayout(Struct, frozen=True):
    """The paths of one member of a gang in one generation and incarnation: each is written once, and only for it."""

    path: str

    @property
    def log(self) -> str:
        """The member's output."""
        return f"{self.path}/log.txt"

    @property
    def model(self) -> str:
        """The trained model, if the training function exported one."""
        return f"{self.path}/{MODEL}"

    @property
    def steps(self) -> str:
        """The times of its newest steps, if it was a member of a gang with a ring."""
        return f"{self.path}/{STEPS}"

    @property
    def exported(self) -> str:
        """The folder with a model of another kind than Keras, if the training function exported one."""
        return f"{self.path}/{EXPORTED}"

    @property
    def files(self) -> str:
        """The folder with the content of `ctx.log_dir`."""
        return f"{self.path}/files"

    def file(self, name: str) -> str:
        """The path of an upload called `name`: the log, the model, or a file in `files`.

        Raises SpecError for any other name, because names come from other processes and from the training function.
        """
        path = f"{self.path}/{name}"
        if path not in (self.log, self.model, self.steps) and not path.startswith(f"{self.files}/"):
            raise SpecError(f"file {name!r} of a member must be log.txt, model.keras, {STEPS}, or beneath files/")
        problem = path_problem(path)
        if problem:
            raise SpecError(f"file {name!r} of a member {problem}: rename it")
        return path


class CheckpointLayout(Struct, frozen=True):
    """The paths of the checkpoints of one process of the chief: no other process ever writes there."""

    path: str

    def manifest(self, step: int) -> str:
        """The manifest of the checkpoint of `step`: the checkpoint exists once this file does."""
        return f"{self.path}/manifest-{step:08d}"

    def data(self, step: int, attempt: str) -> str:
        """The path prefix of the shards of one attempt to write the checkpoint of `step`, unique to the attempt.

        A prefix, not a folder: HDFS counts folders, and keeps them when their last file is deleted.
        """
        return f"{self.path}/data/{step:08d}-{attempt}"


class JournalLayout(Struct, frozen=True):
    """The paths of a run's journal. Each driver has a term, and writes only under its number."""

    path: str

    @property
    def run(self) -> str:
        """The folder of the run."""
        return self.path.rpartition("/")[0]

    def term(self, term: int) -> str:
        """The file with which a driver takes over the run: its writer is the owner until the next one exists."""
        return f"{self.path}/term-{term:04d}"

    def removal(self, number: int) -> str:
        """The mark with which a process starts to delete the run: while there is one, no driver takes the run over."""
        return f"{self.path}/removal-{number:04d}"

    def batch(self, term: int, number: int) -> str:
        """A batch of records, numbered from 1 within its term."""
        return f"{self.path}/batch-{term:04d}-{number:08d}"

    def snapshot(self, term: int, number: int) -> str:
        """A compacted form of all records up to the batch of this term and number."""
        return f"{self.path}/snapshot-{term:04d}-{number:08d}"


class CoordinatorLayout(Struct, frozen=True):
    """The paths of one call that has its coordinator in the cluster: each file is written once."""

    path: str

    @property
    def call(self) -> str:
        """What the call asks for beyond its plan."""
        return f"{self.path}/call.json"

    @property
    def application(self) -> str:
        """The application on YARN that performs the call, where one of its own does."""
        return f"{self.path}/application.json"

    @property
    def end(self) -> str:
        """How the call has ended."""
        return f"{self.path}/end.json"

    def claim(self, number: int) -> str:
        """The mark with which an agent starts the coordinator of this number, from 1: no other agent does."""
        return f"{self.path}/claim-{number:04d}.json"

    def address(self, number: int) -> str:
        """Where the coordinator of this number listens."""
        return f"{self.path}/address-{number:04d}.json"

    def heartbeat(self, number: int, count: int) -> str:
        """A heartbeat of the coordinator of this number."""
        return f"{self.path}/heartbeat-{number:04d}-{count:08d}.json"

    def operation(self, operation: str) -> str:
        """An operation of a Connect server that runs agents of the call."""
        return f"{self.path}/operation-{operation}.json"

    def client_heartbeat(self, count: int) -> str:
        """A heartbeat of the client."""
        return f"{self.path}/client-{count:08d}.json"


class BlockName(NamedTuple):
    """The name of a part of the reports."""

    key: str
    """Key of the driver that wrote it: eight hexadecimal digits."""
    first: int
    """Number of its first append."""
    last: int
    old: bool = False
    """It is a block of gzipped JSON lines, as older versions have written; else a Parquet file."""


class ReportLayout(Struct, frozen=True):
    """The paths of a run's reports. Each driver writes only under its own key."""

    path: str

    def block(self, name: BlockName) -> str:
        """The path of a part."""
        numbers = f"{name.key}-{name.first:08d}-{name.last:08d}"
        return f"{self.path}/block-{numbers}.jsonl.gz" if name.old else f"{self.path}/part-{numbers}.parquet"

    def name_of(self, path: str) -> BlockName | None:
        """The name of the part with this path; None for any other file."""
        match = _PART.fullmatch(path.removeprefix(f"{self.path}/"))
        if match is None:
            return None
        name = BlockName(match[2], int(match[3]), int(match[4]), match[1] is not None)
        return name if self.block(name) == path else None


class RunLayout:
    """The paths of the run `name`, a folder of the store. Raises SpecError for an invalid name."""

    def __init__(self, name: str) -> None:
        problem = _name_problem(name)
        if problem:
            raise SpecError(f"name ({name!r}) of a run {problem}: it becomes a folder of the run directory")
        self.path = name

    def owns(self, path: str) -> bool:
        """Whether a run writes a file, or a folder, with this path of the store: those of folders end with a slash.

        All else in the run's folder is not the run's, such as a user's notes, or a run in a folder within it.
        """
        # By the names that a run gives and not by the folder: gc deleted files of users in data/, and files of other
        # runs.
        if path == f"{self.path}/":
            return True
        folder, inside, name = path.partition("/")
        rule = _OWN_FOLDERS if name.endswith("/") else _OWN_FILES
        return folder == self.path and inside != "" and rule.fullmatch(name) is not None

    @property
    def results(self) -> str:
        """The results, which `sparktrain.runs.results_json` writes at the end of the run."""
        return f"{self.path}/results.json"

    def old_results(self, term: int) -> str:
        """The earlier `results.json`, set aside by the driver of `term` because the journal lacks some trials."""
        return f"{self.path}/results-before-{term:04d}.json"

    @property
    def spec(self) -> str:
        """What the run was asked to do."""
        return f"{self.path}/run.json"

    def plan(self, digest: str) -> str:
        """The plan of the run, from its start or from a resume that changed it."""
        return f"{self.path}/plans/{digest}.json"

    def code(self, digest: str) -> str:
        """A training function in the form that executors receive."""
        return f"{self.path}/code/{digest[:16]}.msgpack"

    @property
    def datasets(self) -> str:
        """The folder of all datasets of the run."""
        return f"{self.path}/data"

    def dataset(self, name: str, digest: str) -> str:
        """The folder of a dataset of the run; `digest` is that of its description."""
        return f"{self.datasets}/{name}-{digest}"

    def data_manifest(self, name: str, digest: str) -> str:
        """The manifest of a dataset: the dataset exists once this file does."""
        return f"{self.dataset(name, digest)}/manifest.json"

    def is_manifest(self, path: str) -> bool:
        """Whether this is the path of a dataset's manifest."""
        return path.startswith(f"{self.datasets}/") and path.endswith("/manifest.json")

    def feed(self, name: str, call: str) -> str:
        """The folder with the addresses of the members that take the rows of a feed, of one call in a driver."""
        return f"{self.path}/feeds/{name}-{call}"

    @property
    def journal(self) -> JournalLayout:
        """The records of the run's drivers."""
        return JournalLayout(f"{self.path}/journal")

    @property
    def reports(self) -> ReportLayout:
        """The reports of the run's trials."""
        return ReportLayout(f"{self.path}/reports")

    @property
    def enqueued_folder(self) -> str:
        """The folder with the trials that users add while the sweep runs."""
        return f"{self.path}/enqueued"

    def enqueued(self, request: str) -> str:
        """A trial that a user adds."""
        return f"{self.enqueued_folder}/{request}.json"

    @property
    def labels(self) -> str:
        """The folder with the notes and tags that users give to trials."""
        return f"{self.path}/labels"

    def label(self, name: str) -> str:
        """A note or a tag of a trial."""
        return f"{self.labels}/{name}.json"

    @property
    def drains(self) -> str:
        """The folder with what users ask the driver to drain."""
        return f"{self.path}/drains"

    def drain(self, request: str) -> str:
        """A request to drain a host or an agent."""
        return f"{self.drains}/{request}.json"

    @property
    def stops(self) -> str:
        """The folder with what users ask the driver to stop."""
        return f"{self.path}/stops"

    def stop(self, request: str) -> str:
        """A request to stop the run or a trial."""
        return f"{self.stops}/{request}.json"

    @property
    def coordinators(self) -> str:
        """The folder of all calls that had their coordinators in the cluster."""
        return f"{self.path}/coordinators"

    def coordinator(self, call: str) -> CoordinatorLayout:
        """The paths of one of these calls: twelve hexadecimal digits."""
        return CoordinatorLayout(f"{self.coordinators}/{call}")

    @property
    def boards(self) -> str:
        """The folder with the address of each TensorBoard that a driver of the run serves."""
        return f"{self.path}/boards"

    def trial(self, trial: TrialId) -> str:
        """The folder of a trial."""
        return f"{self.path}/trials/{trial:04d}"

    def checkpoints(self, trial: TrialId) -> str:
        """The folder of all checkpoints of a trial."""
        return f"{self.trial(trial)}/checkpoints"

    def generation(self, trial: TrialId, generation: Generation, incarnation: int = 0) -> CheckpointLayout:
        """The paths of the checkpoints that the chief of one generation writes, or its process after so many losses."""
        return CheckpointLayout(f"{self.checkpoints(trial)}/gen-{generation:04d}{_again(incarnation)}")

    def members(self, trial: TrialId, generation: Generation) -> str:
        """The folder of the members of one generation."""
        return f"{self.trial(trial)}/generation-{generation}"

    def member(self, member: Member) -> MemberLayout:
        """The paths of one member, or of one that restarted alone."""
        folder = self.members(member.trial, member.generation)
        return MemberLayout(f"{folder}/rank-{member.rank}{_again(member.incarnation)}")

    @property
    def trials(self) -> str:
        """The folder of all trials."""
        return f"{self.path}/trials"

    def member_of_log(self, path: str) -> Member | None:
        """The member with the log at this path; None for any other path."""
        member = self._member_of(path)
        return member if member is not None and self.member(member).log == path else None

    def member_of_steps(self, path: str) -> Member | None:
        """The member with the times of steps at this path; None for any other path."""
        member = self._member_of(path)
        return member if member is not None and self.member(member).steps == path else None

    def _member_of(self, path: str) -> Member | None:
        match = _MEMBER.match(path.removeprefix(f"{self.path}/"))
        if match is None:
            return None
        trial, generation, rank, incarnation = map(int, match.groups(default="0"))
        return Member(RunId(self.path), TrialId(trial), Generation(generation), Rank(rank), incarnation)


def _again(incarnation: int) -> str:
    """What ends the name of the folder of a process that has followed a lost one in its generation."""
    return f"-restart-{incarnation}" if incarnation else ""


def _name_problem(name: str) -> str | None:
    if not name.isprintable() or any(character in name for character in "/\\:"):
        return "must not contain slashes, backslashes, colons or unprintable characters"
    if len(name.encode()) > _LONGEST_NAME_BYTES:
        return f"must not be longer than {_LONGEST_NAME_BYTES} bytes"
    if name != name.strip():
        return "must not start or end with a space"
    return path_problem(name)


def within(run: str, path: str) -> str:
    """The file of this path in the folder `run`, whatever name the run directory had before."""
    match = _IN_RUN.fullmatch(path)
    return path if match is None else run + match[1]
