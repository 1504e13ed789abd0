"""Every path of a run, relative to the root of its store."""

import re
from typing import NamedTuple

from msgspec import Struct

from sparktrain.errors import SpecError
from sparktrain.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.store.base import path_problem

_LONGEST_NAME_BYTES = 200
"""File systems take 255; the rest is for what somebody may hang on it, such as `.tar.gz`."""

_LOG = re.compile(r"trials/(\d+)/generation-(\d+)/rank-(\d+)/log\.txt")
_BLOCK = re.compile(r"block-([0-9a-f]{8})-(\d+)-(\d+)\.jsonl\.gz")


class MemberLayout(Struct, frozen=True):
    """The paths of one member of a gang, in one generation: each is written once, and for no other member."""

    path: str

    @property
    def log(self) -> str:
        """What the member printed."""
        return f"{self.path}/log.txt"

    @property
    def metrics(self) -> str:
        """What the member reported, one JSON object per line."""
        return f"{self.path}/metrics.jsonl"

    @property
    def model(self) -> str:
        """The trained model, when the training function exported one."""
        return f"{self.path}/model.keras"

    @property
    def files(self) -> str:
        """The folder of what the training function put into `ctx.log_dir`."""
        return f"{self.path}/files"

    def file(self, name: str) -> str:
        """The path of what an agent uploads as `name`: the log, the metrics, the model, or something in `files`.

        Raises SpecError for any other name: it comes from another process, and from the training function.
        """
        path = f"{self.path}/{name}"
        if path not in (self.log, self.metrics, self.model) and not path.startswith(f"{self.files}/"):
            raise SpecError(f"file {name!r} of a member must be log.txt, metrics.jsonl, model.keras, or beneath files/")
        problem = path_problem(path)
        if problem:
            raise SpecError(f"file {name!r} of a member {problem}: rename it")
        return path


class CheckpointLayout(Struct, frozen=True):
    """The paths of what one generation of a trial's gang checkpoints: no other generation ever writes there."""

    path: str

    def manifest(self, step: int) -> str:
        """The file that makes the checkpoint of `step` one."""
        return f"{self.path}/manifest-{step:08d}"

    def data(self, step: int, attempt: str) -> str:
        """How the shards begin that one attempt to write the checkpoint of `step` leaves; those of no other attempt do.

        No folder: HDFS counts folders, and keeps them when the last file in them is deleted.
        """
        return f"{self.path}/data/{step:08d}-{attempt}"


class JournalLayout(Struct, frozen=True):
    """The paths of a run's journal. Each driver has an epoch, and writes under its own number alone."""

    path: str

    def epoch(self, epoch: int) -> str:
        """The file by which a driver takes over the run: who has put it there is in charge, until the next is there."""
        return f"{self.path}/epoch-{epoch:04d}"

    def batch(self, epoch: int, number: int) -> str:
        """Records that were written together, numbered from 1 within their epoch."""
        return f"{self.path}/batch-{epoch:04d}-{number:08d}"

    def snapshot(self, epoch: int, number: int) -> str:
        """All records up to the batch of this epoch and number, in fewer words."""
        return f"{self.path}/snapshot-{epoch:04d}-{number:08d}"


class BlockName(NamedTuple):
    """A block of reports."""

    key: str
    """Of the driver that wrote it: eight hexadecimal digits."""
    first: int
    """The first of the appends that it holds."""
    last: int


class ReportLayout(Struct, frozen=True):
    """The paths of what the trials of a run reported. Each driver writes under its own key alone."""

    path: str

    def block(self, name: BlockName) -> str:
        """Rows that one driver wrote."""
        return f"{self.path}/block-{name.key}-{name.first:08d}-{name.last:08d}.jsonl.gz"

    def name_of(self, path: str) -> BlockName | None:
        """The name of the block with this path; None for any other file."""
        found = _BLOCK.fullmatch(path.removeprefix(f"{self.path}/"))
        if found is None:
            return None
        name = BlockName(found[1], int(found[2]), int(found[3]))
        return name if self.block(name) == path else None


class RunLayout:
    """The paths of the run `name`, which is a folder of the store. SpecError when `name` cannot be one."""

    def __init__(self, name: str) -> None:
        problem = _name_problem(name)
        if problem:
            raise SpecError(f"name ({name!r}) of a run {problem}: it becomes a folder of the run directory")
        self.path = name

    @property
    def results(self) -> str:
        """What `sparktrain.runs.results_json` writes at the end of the run."""
        return f"{self.path}/results.json"

    def old_results(self, epoch: int) -> str:
        """What `results.json` was when the driver of `epoch` found that the journal knows not all of its trials."""
        return f"{self.path}/results-before-{epoch:04d}.json"

    @property
    def spec(self) -> str:
        """What the run was asked to do."""
        return f"{self.path}/run.json"

    def plan(self, digest: str) -> str:
        """What the run is asked to do, since its begin or since a driver has resumed it with something changed."""
        return f"{self.path}/plans/{digest}.json"

    def code(self, digest: str) -> str:
        """A training function as it is sent to executors."""
        return f"{self.path}/code/{digest[:16]}.msgpack"

    @property
    def journal(self) -> JournalLayout:
        """What the drivers of the run have written down."""
        return JournalLayout(f"{self.path}/journal")

    @property
    def reports(self) -> ReportLayout:
        """What the trials of the run reported."""
        return ReportLayout(f"{self.path}/reports")

    def trial(self, trial: TrialId) -> str:
        """The folder of a trial."""
        return f"{self.path}/trials/{trial:04d}"

    def checkpoints(self, trial: TrialId) -> str:
        """The folder of all checkpoints of a trial."""
        return f"{self.trial(trial)}/checkpoints"

    def generation(self, trial: TrialId, generation: Generation) -> CheckpointLayout:
        """The paths of the checkpoints that one generation writes."""
        return CheckpointLayout(f"{self.checkpoints(trial)}/gen-{generation:04d}")

    def member(self, member: Member) -> MemberLayout:
        """The paths of one member."""
        return MemberLayout(f"{self.trial(member.trial)}/generation-{member.generation}/rank-{member.rank}")

    @property
    def trials(self) -> str:
        """The folder of all trials."""
        return f"{self.path}/trials"

    def member_of_log(self, path: str) -> Member | None:
        """The member whose log has this path; None when no log has."""
        found = _LOG.fullmatch(path.removeprefix(f"{self.path}/"))
        if found is None:
            return None
        trial, generation, rank = map(int, found.groups())
        member = Member(RunId(self.path), TrialId(trial), Generation(generation), Rank(rank))
        return member if self.member(member).log == path else None


def _name_problem(name: str) -> str | None:
    if not name.isprintable() or any(character in name for character in "/\\:"):
        return "must not contain slashes, backslashes, colons or unprintable characters"
    if len(name.encode()) > _LONGEST_NAME_BYTES:
        return f"must not be longer than {_LONGEST_NAME_BYTES} bytes"
    if name != name.strip():
        return "must not begin or end with a space"
    return path_problem(name)
