"""A journal file: records are read back, a truncated file yields its start, and every changed byte is noticed."""

import math
import re
import zlib
from typing import Any, get_args
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktrain.base.ids import Generation, TrialId
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal import journal_file
from sparktrain.rundir.journal.journal_file import (
    BATCH,
    SNAPSHOT,
    VERSION,
    Content,
    Fault,
    Followed,
    Header,
    decode,
    encode,
)
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.gangs.step_times import GangTimes, SlowCause, SlowMember, StepTimes
from sparktrain.state.outcome import Failure, FailureKind, Loss, Report, Restart, RestartHow
from sparktrain.state.records import (
    AnyRecord,
    CaseClosed,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    CheckpointsDropped,
    DrainCompleted,
    DrainDecided,
    DriverStarted,
    Exploited,
    GangAdopted,
    GangFormed,
    GangRecovered,
    GangRestarted,
    HorizonLearned,
    LossRecorded,
    MemberRestarted,
    RunEnded,
    RungReached,
    SaveFailed,
    StandbysNoted,
    StepsTimed,
    TrialAnswered,
    TrialConcluded,
    TrialPaused,
    TrialPromoted,
    TrialReported,
    TrialsAdded,
)
from sparktrain.state.trial import TrialStatus
from tests.unit.rundir.journal.journals import fact, facts

FOLLOWS = (Followed(1, 7), Followed(2, 3, records=5))
HEADER = Header(VERSION, "0.1.0", BATCH, 3, 4, 0, 0, FOLLOWS)

text = st.text(max_size=12)
numbers = st.integers(0, 2**63 - 1)
metrics = st.dictionaries(text, st.floats(), max_size=3)
hosts = st.lists(text, max_size=2).map(tuple)
kinds = st.sampled_from(list(FailureKind))
finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
checkpoints = st.builds(Checkpoint, numbers, numbers, text, text, numbers, st.none() | st.floats())
failures = st.builds(Failure, kinds, text, text, hosts, st.none() | numbers, st.none() | text)
losses = st.none() | st.sampled_from(list(Loss))
restarts = st.builds(
    Restart,
    numbers,
    st.none() | text,
    kinds,
    text,
    st.floats(),
    st.none() | numbers,
    st.none() | numbers,
    losses,
    st.sampled_from(RestartHow),
).map(lambda restart: replace(restart, members=2 if restart.how is RestartHow.SHRUNK else None))
step_times = st.builds(StepTimes, finite, finite, finite, numbers)
slow_members = st.builds(SlowMember, numbers, finite, finite, st.sampled_from(list(SlowCause)))
FIELDS = {
    DriverStarted: {
        "plan": text,
        "space": text,
        "retry_failed": st.booleans(),
        "extends": st.booleans(),
        "at": finite,
        "ran_s": finite,
        "trials": st.none() | numbers,
    },
    TrialsAdded: {
        "cases": st.lists(st.dictionaries(text, values, max_size=3), max_size=3).map(tuple),
        "exhausted": st.booleans(),
        "asked": numbers,
        "observed": numbers,
        "each": st.integers(1, 1000),
    },
    GangFormed: {"generation": numbers, "hosts": hosts, "base": text},
    CheckpointAcknowledged: {"checkpoint": checkpoints},
    SaveFailed: {"step": numbers, "problem": text},
    CheckpointCorrupt: {"manifest": text, "reason": text},
    CheckpointsDropped: {"manifests": st.lists(text, max_size=3).map(tuple), "reason": text},
    GangAdopted: {"generation": numbers},
    GangRestarted: {"restart": restarts, "forgiven": st.booleans()},
    GangRecovered: {"seconds": finite},
    LossRecorded: {"generation": numbers, "restart": restarts, "place": st.none() | numbers},
    MemberRestarted: {"generation": numbers, "restart": restarts},
    TrialReported: {"report": st.builds(Report, numbers, metrics)},
    StepsTimed: {"times": st.builds(GangTimes, st.lists(step_times, max_size=3).map(tuple), st.none() | slow_members)},
    RungReached: {"rule": text, "rung": numbers, "step": numbers, "value": st.none() | finite, "reason": text},
    CaseClosed: {"case": numbers, "reason": text},
    HorizonLearned: {"rule": text, "most": numbers},
    Exploited: {
        "donor": numbers,
        "checkpoint": checkpoints,
        "params": st.dictionaries(text, values, max_size=3),
        "step": numbers,
        "reason": text,
    },
    TrialPaused: {"restart": restarts},
    TrialPromoted: {"rule": text, "rung": numbers},
    TrialAnswered: {"params": st.dictionaries(text, values, max_size=3), "memo": st.dictionaries(text, text)},
    TrialConcluded: {
        "status": st.sampled_from(list(TrialStatus)),
        "metrics": metrics,
        "failure": st.none() | failures,
        "seconds": finite,
    },
    DrainDecided: {
        "request": text,
        "host": text,
        "agent": st.none() | numbers,
        "problem": text,
        "notice": text,
        "within_s": st.none() | st.floats(0.0, 1e6),
        "cancels": st.booleans(),
    },
    DrainCompleted: {"request": text},
    StandbysNoted: {"text": text},
    RunEnded: {"ending": text, "reason": text, "seconds": finite},
}
records = st.lists(
    st.one_of(
        *(
            st.builds(kind, **fields, **({"trial": numbers} if "trial" in kind.__struct_fields__ else {}))
            for kind, fields in FIELDS.items()
        )
    ),
    max_size=6,
)


def read(content: bytes, kind: str = BATCH, term: int = 3, number: int = 4) -> Content:
    return decode(content, "/runs/run/journal/batch", kind, term, number)


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself."""
    return bool(repr(left) == repr(right))


def test_all_kinds_of_records_are_covered() -> None:
    assert set(FIELDS) == set(get_args(AnyRecord))


@given(records)
def test_records_are_read_back(written: list[AnyRecord]) -> None:
    content = encode(HEADER, written)
    found = read(content)
    assert found.fault is None
    assert same(found.records, tuple(written))
    assert content.count(b"\n") == len(written) + 1
    assert found.header == msgspec.structs.replace(
        HEADER, records=len(written), size=len(content) - content.index(b"\n") - 1
    )


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_metrics_need_not_be_finite(number: float) -> None:
    written = (
        fact(1, metrics={"loss": number}, failure=Failure(FailureKind.METRIC, "null", host="null")),
        TrialReported(trial=TrialId(1), report=Report(3, {"loss": number})),
        CheckpointAcknowledged(trial=TrialId(1), checkpoint=Checkpoint(Generation(1), 3, "a", "b", score=number)),
    )
    assert same(read(encode(HEADER, written)).records, written)


def test_the_file_is_text() -> None:
    lines = encode(HEADER, facts(1)).decode().splitlines()
    assert [line[:9] for line in lines] == ["edf1f8dc ", "dd7f409b "]
    assert [line[9:] for line in lines] == [
        '{"version":1,"sparktrain":"0.1.0","kind":"batch","term":3,"number":4,"records":1,"size":66,'
        '"follows":[{"term":1,"number":7},{"term":2,"number":3,"records":5}]}',
        '{"type":"TrialConcluded","trial":1,"status":"succeeded"}',
    ]


def test_a_file_truncated_at_any_byte_yields_its_start() -> None:
    content = encode(HEADER, facts(1, 2, 3))
    first, *lines = content.splitlines(keepends=True)
    for length in range(len(content)):
        found = read(content[:length])
        assert found.fault is not None
        assert found.fault.cut
        assert (found.header is None) == (length < len(first))
        whole = sum(length >= len(first) + len(b"".join(lines[: index + 1])) for index in range(3))
        assert found.records == facts(1, 2, 3)[:whole]
        assert found.fault.record == (whole + 1 if found.header else 0)


def check_every_changed_byte() -> None:
    content, written = encode(HEADER, facts(1, 2, 3)), facts(1, 2, 3)
    for position in range(len(content)):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, content[position], content[position] ^ ord("\n")):
            if change == 0:
                continue
            changed = content[:position] + bytes([content[position] ^ change]) + content[position + 1 :]
            found = read(changed)
            assert found.fault is not None, f"byte {position} ^ {change} is accepted"
            assert not found.fault.cut, f"byte {position} ^ {change} looks like a cut"
            assert found.records == written[: len(found.records)], f"byte {position} ^ {change} is read"


def test_every_changed_byte_is_found_and_is_not_a_truncation() -> None:
    check_every_changed_byte()


def test_changed_bytes_are_not_found_without_the_checksum() -> None:
    with patch.object(journal_file, "_checked", lambda number, line: line[9:]), pytest.raises(AssertionError):
        check_every_changed_byte()


@pytest.mark.parametrize(
    ("change", "record", "problem"),
    [
        (lambda lines: [*lines, b"more\n"], 4, "does not match its checksum"),
        (lambda lines: [*lines, lines[-1]], 4, "does not match its checksum"),
        (lambda lines: [*lines, b"\0\0\0"], 4, "is wrong: there are 3 lines in 201 bytes, .* 3 in 198"),
        (lambda lines: [*lines[:2], b"bad\n", *lines[2:]], 2, "does not match its checksum"),
        (lambda lines: [lines[0], *lines[2:]], 1, "does not match its checksum"),
        (lambda lines: [*lines[:2], lines[3], lines[2]], 2, "does not match its checksum"),
        (lambda lines: lines[:3], 3, "is missing: 66 bytes were cut off"),
        (lambda lines: lines[1:], 0, "has a header that does not match its checksum"),
    ],
)
def test_extra_and_missing_lines_are_found(change: Any, record: int, problem: str) -> None:
    found = read(b"".join(change(encode(HEADER, facts(1, 2, 3)).splitlines(keepends=True))))
    assert found.fault is not None
    assert found.fault.record == record
    assert re.search(problem, found.fault.problem)


@pytest.mark.parametrize(
    ("kind", "term", "number"), [(SNAPSHOT, 3, 4), (BATCH, 2, 4), (BATCH, 3, 5)], ids=["kind", "term", "number"]
)
def test_a_file_under_another_files_name_is_found(kind: str, term: int, number: int) -> None:
    found = read(encode(HEADER, facts(1)), kind, term, number)
    assert found == Content(None, fault=Fault(0, "has the header of batch 4 of term 3"))


def test_an_unknown_record_is_found() -> None:
    class TrialSold(TrialConcluded, frozen=True, tag=True, kw_only=True):
        pass

    found = read(encode(HEADER, (fact(1), TrialSold(trial=TrialId(2), status=TrialStatus.LOST))))
    assert found.records == facts(1)
    assert found.fault is not None
    assert str(found.fault).startswith("record 2 is not a record: Invalid value 'TrialSold'")


def test_the_file_of_a_later_version_is_refused() -> None:
    payload = b'{"version":2,"sparktrain":"3.1.0","anything":"else"}'
    content = b"%08x %b\n" % (zlib.crc32(payload), payload)
    with pytest.raises(
        RunDirectoryError,
        match=r"^/runs/run/journal/batch was written by sparktrain 3.1.0 \(format 2; this sparktrain reads format 1\): "
        "use that version, or a later one, for this run$",
    ):
        read(content)
