"""The messages of an agent in place of those that are too large."""

import pytest

from sparktrain.executor.outbox import fitting
from sparktrain.executor.snapshots import MOST_SHARDS
from sparktrain.protocol import messages as m
from sparktrain.protocol.codec import encode
from sparktrain.state.checkpoint_parts import Shard, StoredPart
from sparktrain.state.message import LARGE_BYTES, LARGEST_OF_AGENT_BYTES, SMALL_BYTES
from sparktrain.state.outcome import Report
from tests.support.transports import FROM_AGENT, MEMBER


def sent(message: m.FromAgent) -> list[m.FromAgent]:
    found = list(fitting(message))
    assert all(len(encode(each)) <= each.most_bytes for each in found)
    return found


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: type(message).__name__)
def test_what_fits_is_sent_as_it_is(message: m.FromAgent) -> None:
    assert sent(message) == [message]


def test_many_reports_are_sent_in_several_messages_in_order() -> None:
    reports = tuple(Report(step, {"x" * 100_000: float(step)}) for step in range(40))
    parts = sent(m.MemberReported(MEMBER, reports))
    assert len(parts) > 3
    assert tuple(report for part in parts if isinstance(part, m.MemberReported) for report in part.reports) == reports


@pytest.mark.parametrize(
    "message",
    [
        m.CheckpointFailed(MEMBER, 1, "ä" * SMALL_BYTES),
        m.MemberStored(MEMBER, "files/x: " * LARGE_BYTES),
        m.Leave("\U0001f600" * SMALL_BYTES),
        m.Ready(None, {f"module_{number}": "x" * 100_000 for number in range(30)}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_long_texts_are_cut_with_a_note(message: m.FromAgent) -> None:
    [fitted] = sent(message)
    assert "characters more)" in repr(fitted)


def test_the_part_with_the_most_files_is_one_message() -> None:
    shards = [Shard(f"part-{9999:04d}-{number:05d}.safetensors", 2**50, "f" * 64) for number in range(MOST_SHARDS)]
    message = m.PartStored(MEMBER, 2**50, StoredPart("a" * 32, tuple(shards)))
    assert len(encode(message)) <= message.most_bytes


def test_no_message_of_an_agent_takes_the_event_loop_long_to_read() -> None:
    assert max(type(message).most_bytes for message in FROM_AGENT) == LARGEST_OF_AGENT_BYTES
    assert LARGEST_OF_AGENT_BYTES < 2 * 2**20
