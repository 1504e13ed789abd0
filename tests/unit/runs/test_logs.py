"""Logs of a run: which are chosen, their last lines, and how they are followed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import logs
from sparktrain.runs.logs import Follower, LogFile, LogSelection, TerminalSanitizer, chosen, content, delay_of, logs_in
from sparktrain.runs.view import RunView
from sparktrain.state.outcome import FailureKind, Restart, RestartHow
from sparktrain.state.records import MemberRestarted
from sparktrain.state.trial import TrialStatus
from tests.unit.driver.stored import ScriptedRun, looked_at, typical
from tests.unit.store.gated import MemoryStore


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    run = typical(tmp_path / "runs")
    run.log(2, "other member\n", generation=2, rank=1)
    return run


def test_every_log_is_found(run: ScriptedRun) -> None:
    found = [(log.member.trial, log.member.generation, log.member.rank, log.size) for log in logs_in(run.place)]
    assert found == [(0, 1, 0, 16), (2, 1, 0, 6), (2, 2, 0, 7), (2, 2, 1, 13)]
    assert [log.member.trial for log in logs_in(run.place, TrialId(0))] == [0]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LogSelection(), [(0, 1, 0), (2, 2, 0)]),
        (LogSelection(TrialId(2)), [(2, 2, 0)]),
        (LogSelection(TrialId(2), rank=Rank(1)), [(2, 2, 1)]),
        (LogSelection(TrialId(2), generation=Generation(1)), [(2, 1, 0)]),
        (LogSelection(TrialId(2), all=True), [(2, 1, 0), (2, 2, 0), (2, 2, 1)]),
        (LogSelection(TrialId(2), rank=Rank(0), all=True), [(2, 1, 0), (2, 2, 0)]),
        (LogSelection(TrialId(2), generation=Generation(2), all=True), [(2, 2, 0), (2, 2, 1)]),
        (LogSelection(TrialId(3)), []),
    ],
)
def test_the_newest_log_of_the_chief_unless_others_are_named(
    run: ScriptedRun, wanted: LogSelection, expected: list[tuple[int, ...]]
) -> None:
    found = chosen(logs_in(run.place), wanted)
    assert [(log.member.trial, log.member.generation, log.member.rank) for log in found] == expected


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"", 2, b""),
        (b"first\n" + b"x" * 200_000 + b"\nlast\n", 2, b"x" * 200_000 + b"\nlast\n"),
        (b"line\n" * 50_000, 40_000, b"line\n" * 40_000),
    ],
)
def test_the_last_lines(text: bytes, lines: int, expected: bytes) -> None:
    store = MemoryStore()
    store.put_if_absent("log", text)
    log = LogFile(Member(RunId("r"), TrialId(0), Generation(1)), "log", len(text))
    assert b"".join(content(store, log, lines)) == expected


def test_what_could_move_the_cursor_is_written_as_an_escape_and_colours_stay() -> None:
    clean = TerminalSanitizer()
    assert clean(b"\x1b[31mred\x1b[0m\r50 %\n\x1b[2J\x07") == b"\x1b[31mred\x1b[0m\r50 %\n\\x1b[2J\\x07"
    assert clean("ü".encode()[:1]) + clean("ü".encode()[1:]) == "ü".encode()


def test_the_delay_of_a_log_is_named_for_each_kind_of_store() -> None:
    class Elsewhere(MemoryStore):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

        @property
        def address(self) -> StoreAddress:
            return StoreAddress(self.url)

    assert delay_of(Elsewhere("/shared/runs")) is None
    assert "a few seconds later" in str(delay_of(Elsewhere("hdfs://nn/runs")))
    assert "when its trial has ended" in str(delay_of(Elsewhere("s3://bucket/runs")))


class Story:
    """A run that advances by one step at each pause of a follower."""

    def __init__(self, run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.steps: list[Callable[[], None]] = []
        self.notices: list[str] = []
        monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda who: True)
        monkeypatch.setattr(logs, "pause", lambda seconds: self.steps.pop(0)() if self.steps else None)

    def look(self) -> RunView:
        return looked_at(self.run)

    def followed(self, wanted: LogSelection, tail: int | None = None) -> bytes:
        return b"".join(Follower(self.run.place, self.look, wanted, tail).pieces(self.notices.append))


def test_a_log_is_followed_to_the_end_of_its_trial(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(run, monkeypatch)
    run.form(3)
    stream = run.store.open_stream(RunLayout("mnist").member(Member(RunId("mnist"), TrialId(3), Generation(1))).log)
    story.steps = [
        lambda: stream.write(b"one\n"),
        lambda: stream.write(b"two\n"),
        lambda: run.succeed(3, accuracy=0.1),
        lambda: stream.write(b"three, a little late\n"),
    ]
    assert story.followed(LogSelection(TrialId(3))) == b"one\ntwo\nthree, a little late\n"
    assert not story.steps
    stream.close()


def test_the_next_generation_is_followed_too(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(run, monkeypatch)
    story.steps = [
        lambda: run.lose(2),
        lambda: run.form(2, 3),
        lambda: run.log(2, "third\n", generation=3),
        lambda: run.fail(2),
    ]
    assert story.followed(LogSelection(TrialId(2)), tail=1) == b"second\nthird\n"
    assert story.notices == ["trial 2 restarts: generation 3"]


def test_the_next_process_of_a_member_that_restarts_alone_is_followed_too(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(run, monkeypatch)
    again = Member(RunId("mnist"), TrialId(2), Generation(2), incarnation=1)
    restart = Restart(0, "host-2", FailureKind.MEMORY, "killed", 0.4, 3, 0, how=RestartHow.HEALED)
    story.steps = [
        lambda: run.write(MemberRestarted(trial=TrialId(2), generation=Generation(2), restart=restart)),
        lambda: run.store.put_if_absent(run.layout.member(again).log, b"third\n") and None,
        lambda: run.fail(2),
    ]
    assert story.followed(LogSelection(TrialId(2))) == b"second\nthird\n"
    assert story.notices == ["rank 0 of trial 2 restarts alone"]


def test_an_older_generation_has_an_end(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(run, monkeypatch)
    assert story.followed(LogSelection(TrialId(2), generation=Generation(1))) == b"first\n"


def test_nothing_is_followed_that_is_not_there(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(run, monkeypatch)
    with pytest.raises(SpecError, match="trial 9 is none of run mnist: there are 0, 1, 2, 3"):
        story.followed(LogSelection(TrialId(9)))


def test_the_log_of_a_trial_without_a_driver_ends(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "pause", lambda seconds: None)
    assert looked_at(run).results[2].status is TrialStatus.RUNNING
    follower = Follower(run.place, lambda: looked_at(run), LogSelection(TrialId(2)), None)
    assert b"".join(follower.pieces(lambda notice: None)) == b"second\n"
