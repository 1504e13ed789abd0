"""Framing: any cut of the stream gives the same messages, on both kinds of pipe."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.errors import ProtocolError
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.codec import decode, encode
from sparktrain.protocol.frames import AsyncPipe, BlockingPipe, FrameBuffer, frame
from sparktrain.state.message import MAX_MESSAGE_BYTES

Pipes = tuple[AsyncPipe[m.FromZygote], BlockingPipe[m.ToZygote]]

LARGE = m.Preload(tuple(f"module{number}" for number in range(200_000)))


@pytest.fixture
async def pipes() -> Iterator[Pipes]:
    """An agent's end, and a zygote's."""
    left, right = socket.socketpair()
    agent, zygote = AsyncPipe(left, m.FromZygote, carries_fds=True), BlockingPipe(right, m.ToZygote)
    with closing(agent), closing(zygote):
        yield agent, zygote


@given(st.lists(st.text()), st.lists(st.integers(1, 40), min_size=1))
def test_messages_come_out_whatever_the_pieces(texts: list[str], cuts: list[int]) -> None:
    messages = [m.Preload((text,)) for text in texts]
    stream = b"".join(map(frame, messages))
    buffer, found = FrameBuffer(), []
    while stream:
        for cut in cuts:
            found += buffer.feed(stream[:cut])
            stream = stream[cut:]

    assert [decode(data, m.ToZygote) for data in found] == messages


def test_a_length_that_no_message_has_is_refused() -> None:
    with pytest.raises(ProtocolError, match=f"a message of 4294967295 bytes .* limit is {MAX_MESSAGE_BYTES}"):
        FrameBuffer().feed(b"\xff\xff\xff\xff")


def test_a_message_that_nobody_would_take_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="Preload has"):
        frame(m.Preload(("x" * MAX_MESSAGE_BYTES,)))


async def test_both_ways(pipes: Pipes) -> None:
    agent, zygote = pipes
    agent.send(m.Fork())
    agent.send(m.Kill(7, 0.5))

    assert zygote.receive() == m.Fork()
    assert zygote.poll() == m.Kill(7, 0.5)
    assert zygote.poll() is None
    zygote.send(m.Preloaded({}))
    assert await agent.receive() == m.Preloaded({})


async def test_a_large_message_does_not_wait_for_its_receiver(pipes: Pipes) -> None:
    agent, zygote = pipes
    agent.send(LARGE)
    agent.send(m.Fork())

    assert await asyncio.to_thread(zygote.receive) == LARGE
    assert await asyncio.to_thread(zygote.receive) == m.Fork()


async def test_a_descriptor_travels_beside_its_message(pipes: Pipes) -> None:
    agent, zygote = pipes
    read_end, write_end = os.pipe()
    zygote.send(m.Preloaded({}))
    zygote.send(m.Forked(5), fds=(read_end,))
    os.close(read_end)

    assert await agent.receive() == m.Preloaded({})
    assert await agent.receive() == m.Forked(5)
    assert len(agent.fds) == 1
    assert not os.get_inheritable(agent.fds[0])
    agent.close()
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"no process took the other end")
    os.close(write_end)


async def test_the_end_comes_after_the_last_message(pipes: Pipes) -> None:
    agent, zygote = pipes
    agent.send(m.Fork())
    agent.shut()
    zygote.send(m.Preloaded({}))
    zygote.close()

    assert await agent.receive() == m.Preloaded({})
    assert await agent.receive() is None
    agent.send(m.Fork())


async def test_a_cancelled_receive_loses_nothing(pipes: Pipes) -> None:
    agent, zygote = pipes
    receive = asyncio.create_task(agent.receive())
    await asyncio.sleep(0)
    zygote.send(m.Preloaded({}))
    receive.cancel()
    await asyncio.wait({receive})

    assert await agent.receive() == m.Preloaded({})


async def test_closing_ends_a_receive(pipes: Pipes) -> None:
    agent, _ = pipes
    receive = asyncio.create_task(agent.receive())
    await asyncio.sleep(0)
    agent.close()

    assert await receive is None


async def test_draining_keeps_what_has_come(pipes: Pipes) -> None:
    agent, zygote = pipes
    zygote.send(m.Preloaded({}))
    agent.drain()

    assert await agent.receive() == m.Preloaded({})
    assert await agent.receive() is None


async def test_what_is_no_message_is_refused(pipes: Pipes) -> None:
    agent, zygote = pipes
    zygote.send(m.Fork())  # a message, but not one from a zygote

    with pytest.raises(ProtocolError, match="refused"):
        await agent.receive()
    assert encode(m.Fork())
