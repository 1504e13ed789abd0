"""The bounded queue beneath links and uploads."""

import asyncio

import pytest

from sparktrain.protocol.transport import CHUNK_BYTES, Limits, LinkClosedError, Mailbox, pieces


def box(messages: int = 3, size: int = 100) -> Mailbox[str]:
    return Mailbox[str]("the peer", Limits(messages, size))


async def test_items_come_in_order_and_then_the_reason() -> None:
    queue = box()
    queue.put("a", 1)
    queue.put("b", 1)
    queue.end("enough")
    queue.end("too late")
    queue.put("c", 1)
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    for _ in range(2):
        with pytest.raises(LinkClosedError, match="the peer has ended: enough"):
            await queue.take()


async def test_end_can_drop_what_waits() -> None:
    queue = box()
    queue.put("a", 1)
    queue.end("enough", keep=False)
    with pytest.raises(LinkClosedError, match="enough"):
        await queue.take()


@pytest.mark.parametrize(("sizes", "fits"), [((1, 1), True), ((1, 1, 1), False), ((60, 40), False), ((500,), False)])
async def test_limits_count_items_and_bytes(sizes: tuple[int, ...], fits: bool) -> None:
    queue = box()
    for size in sizes:
        queue.put("x", size)
    assert queue.fits(1) is fits


async def test_one_item_fits_whatever_its_size() -> None:
    assert box().fits(10**9)


async def test_room_waits_for_a_taker_or_the_end() -> None:
    queue = box(messages=1)
    queue.put("a", 1)
    for _ in range(2):
        waiting = asyncio.ensure_future(queue.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await queue.take()
        await waiting
        queue.put("b", 1)
    waiting = asyncio.ensure_future(queue.room())
    await asyncio.sleep(0)
    queue.end("enough")
    await waiting


async def test_waiting_takers_each_get_one() -> None:
    queue = box()
    takers = [asyncio.ensure_future(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for item in "abc":
        queue.put(item, 1)
    assert sorted(await asyncio.gather(*takers)) == ["a", "b", "c"]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_pieces_are_small_enough_and_never_empty(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    cut = list(pieces(data))
    assert b"".join(cut) == data
    assert all(0 < len(piece) <= CHUNK_BYTES for piece in cut)
