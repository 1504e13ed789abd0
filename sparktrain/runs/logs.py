"""The logs in a run directory: which exist, what they contain, and what is added while their trial runs."""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from sparktrain.base.clock import pause
from sparktrain.base.ids import CHIEF, Generation, Member, Rank, RunId, TrialId
from sparktrain.errors import SpecError
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView
from sparktrain.store.base import PIECE_BYTES, Store

POLL_S = 1.0
"""Time between two reads of a log that is followed."""
SETTLED_POLLS = 3
"""How many reads without news end a log: its last lines may be uploaded after the end of its trial."""
TAIL_BYTES = 64 * 1024

_MOVING = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
"""Control characters that could move a cursor, except the end of a line; colours stay."""
_SHOWN_TRIALS = 12


class LogFile(Struct, frozen=True):
    """The log of one member."""

    member: Member
    path: str
    """Its path in the store."""
    size: int
    """Bytes, as far as the store shows them."""


class LogSelection(Struct, frozen=True):
    """The logs that the user asks for."""

    trial: TrialId | None = None
    generation: Generation | None = None
    rank: Rank | None = None
    all: bool = False
    """Take every generation and rank that is not named, in place of the newest and the chief."""


def logs_in(place: RunLocation, trial: TrialId | None = None) -> list[LogFile]:
    """The logs of the run, or of one trial, in the order of trials, generations and ranks. Blocks. Raises OSError."""
    folder = place.layout.trials if trial is None else place.layout.trial(trial)
    members = {member: path for path in place.store.list(folder) if (member := place.layout.member_of_log(path))}
    return [LogFile(member, path, place.store.stat(path).size) for member, path in sorted(members.items())]


def chosen(logs: Sequence[LogFile], selection: LogSelection) -> list[LogFile]:
    """The logs that `selection` asks for: by default those of the chief of the newest generation of each trial."""
    rank = CHIEF if selection.rank is None and not selection.all else selection.rank
    matches = [
        log
        for log in logs
        if selection.trial in (None, log.member.trial)
        and selection.generation in (None, log.member.generation)
        and rank in (None, log.member.rank)
    ]
    if selection.all or selection.generation is not None:
        return matches
    newest = {log.member.trial: log.member.generation for log in matches}  # the logs are in the order of generations
    return [log for log in matches if log.member.generation == newest[log.member.trial]]


def missing(logs: Sequence[LogFile], selection: LogSelection) -> SpecError:
    """The error for a log that does not exist; `logs` are those of the trial."""
    of = f"trial {selection.trial}" + (
        f" in generation {selection.generation}" if selection.generation is not None else ""
    )
    of += f" of rank {selection.rank}" if selection.rank is not None else ""
    if not logs:
        return SpecError(
            f"there is no log of {of} yet: a log exists once its trial has printed something and has run for a moment; "
            "try --follow"
        )
    examples = ", ".join(f"{log.member.generation}/{log.member.rank}" for log in logs[:_SHOWN_TRIALS])
    return SpecError(
        f"there is no log of {of}; by generation/rank there are {examples}{' ...' * (len(logs) > _SHOWN_TRIALS)}"
    )


def printed_nothing(view: RunView, selection: LogSelection) -> bool:
    """Whether the trial has run and ended, so that a log which is not stored never will be."""
    trial = next((result for result in view.results if result.id == selection.trial), None)
    return trial is not None and trial.status.final and trial.generations > 0 and selection.generation is None


def wanted_of(view: RunView, trial: int | None, generation: int | None, rank: int | None, every: bool) -> LogSelection:
    """The logs that the options ask for; an only trial need not be named. Raises SpecError for an unknown trial."""
    if trial is None and len(view.results) == 1:
        trial = view.results[0].id
    if trial is not None:
        check_trial(view, TrialId(trial))
    elif generation is not None or rank is not None:
        raise SpecError(f"run {view.name} has {len(view.results)} trials: name the trial of the log")
    return LogSelection(
        None if trial is None else TrialId(trial),
        None if generation is None else Generation(generation),
        None if rank is None else Rank(rank),
        every,
    )


def check_trial(view: RunView, trial: TrialId) -> None:
    """Raises SpecError when the run has no such trial."""
    if any(result.id == trial for result in view.results):
        return
    ids = [str(result.id) for result in view.results]
    hint = (
        f"there are {', '.join(ids[:_SHOWN_TRIALS])}{' ...' * (len(ids) > _SHOWN_TRIALS)}" if ids else "it has none yet"
    )
    raise SpecError(f"trial {trial} is none of run {view.name}: {hint}")


def content(store: Store, log: LogFile, tail: int | None = None) -> Iterator[bytes]:
    """The content of the log, or its last `tail` lines, in pieces. Blocks. Each piece may raise OSError."""
    start = 0 if tail is None else _start_of_tail(store, log, tail)
    yield from _from(store, log.path, start)


def _start_of_tail(store: Store, log: LogFile, lines: int) -> int:
    """Where the last `lines` lines start; an end without a newline is a line too."""
    start = log.size
    remaining = lines
    while start > 0:
        length = min(TAIL_BYTES, start)
        piece = store.read_range(log.path, start - length, length)
        if start == log.size:
            piece = piece.removesuffix(b"\n")
        newlines = piece.count(b"\n")
        if newlines >= remaining:
            for _ in range(remaining - 1):
                piece = piece[: piece.rindex(b"\n")]
            return start - length + piece.rindex(b"\n") + 1
        remaining = remaining - newlines
        start = start - length
    return 0


def _from(store: Store, path: str, start: int) -> Iterator[bytes]:
    while piece := store.read_range(path, start, PIECE_BYTES):
        yield piece
        start += len(piece)


class Follower:
    """The growing log of one trial, in its newest generation or in the one that is named. Blocks.

    Where the member is lost and restarts alone, it continues with the log of the next process.
    """

    def __init__(
        self, place: RunLocation, look: Callable[[], RunView], selection: LogSelection, tail: int | None
    ) -> None:
        """`selection` names the trial."""
        self._place = place
        self._look = look
        self._selection = selection
        self._tail = tail

    def pieces(self, notify: Callable[[str], None]) -> Iterator[bytes]:
        """What exists, and what is added, until the trial has ended; `notify` gets lines that are no part of the log.

        Raises OSError from the store, SpecError when the run has no such trial.
        """
        if (notice := delay_of(self._place.store)) is not None:
            notify(notice)
        process: Member | None = None
        at = 0
        quiet = 0
        while True:
            view = self._look()
            newest = self._newest(view)
            if process is None or newest > process:
                if process is not None:
                    yield from self._read_from(process, at)
                    notify(_successor(process, newest))
                process = newest
                at = self._start(newest)
            start = at
            for piece in self._read_from(process, at):
                at += len(piece)
                yield piece
            quiet = 0 if at > start or not self._over(view) else quiet + 1
            if quiet >= (SETTLED_POLLS if view.state is RunState.RUNNING else 1):
                return
            pause(POLL_S)

    def _newest(self, view: RunView) -> Member:
        assert self._selection.trial is not None
        check_trial(view, self._selection.trial)
        result = next(trial_result for trial_result in view.results if trial_result.id == self._selection.trial)
        newest = Generation(result.generations)
        generation = newest if self._selection.generation is None else self._selection.generation
        rank = self._selection.rank or CHIEF
        if generation == newest and rank < len(result.members):
            path = result.members[rank].log.removeprefix(self._place.store.where()).lstrip("/")
            if (member := self._place.layout.member_of_log(path)) is not None:
                return member
        return Member(RunId(self._place.layout.path), self._selection.trial, generation, rank)

    def _over(self, view: RunView) -> bool:
        """The member has ended, or no driver watches it any more."""
        result = next(trial_result for trial_result in view.results if trial_result.id == self._selection.trial)
        return (
            view.state is not RunState.RUNNING
            or result.status.final
            or self._newest(view).generation < result.generations
        )

    def _start(self, process: Member) -> int:
        tail = self._tail
        self._tail = None
        path = self._place.layout.member(process).log
        if tail is None or not self._place.store.exists(path):
            return 0
        log = LogFile(process, path, self._place.store.stat(path).size)
        return _start_of_tail(self._place.store, log, tail)

    def _read_from(self, process: Member, at: int) -> Iterator[bytes]:
        try:
            yield from _from(self._place.store, self._place.layout.member(process).log, at)
        except FileNotFoundError:  # nothing was uploaded yet
            return


def _successor(process: Member, successor: Member) -> str:
    """What follows the process of a member, in one line."""
    if successor.generation > process.generation:
        return f"trial {successor.trial} restarts: generation {successor.generation}"
    return f"rank {successor.rank} of trial {successor.trial} restarts alone"


def delay_of(store: Store) -> str | None:
    """How late the store shows a log that is being written; None when it does so at once."""
    scheme, colon, _ = store.address.url.partition(":/")
    if not colon or scheme == "file":
        return None
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        return "HDFS shows what a trial prints a few seconds later"
    return f"an object store ({scheme}) shows a log when its trial has ended or restarts: until then it is empty"


class TerminalSanitizer:
    """Makes what a program printed safe for a terminal: characters that move the cursor or hide text become escapes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def __call__(self, piece: bytes) -> bytes:
        """The next piece, in UTF-8; a character that is cut comes with the piece after it."""
        text = self._decoder.decode(piece)
        return _MOVING.sub(lambda match: ascii(match.group())[1:-1], text).encode()
