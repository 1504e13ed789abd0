"""A real member writes a log of 100 MB without a newline and in no encoding."""

import hashlib
import os
from pathlib import Path

from sparktrain.base.clock import SystemClock
from sparktrain.executor.log_tail import CHUNK_BYTES, SLACK_BYTES, TAIL_BYTES, LogFollower, tail_lines
from tests.process.harness import Bench, see_out

BLOCK = bytes(range(11, 256)) * 4096  # all bytes but the newline
BLOCKS = 100 * 2**20 // len(BLOCK)


def _print_much():
    for count in range(BLOCKS):
        os.write(1, count.to_bytes(4, "big").replace(b"\n", b"\0") + BLOCK)


async def _follow(bench: Bench, limit_bytes: int) -> tuple[Path, list[bytes]]:
    child, trial = await bench.start(_print_much)
    follower = LogFollower(trial.home / "log.txt", limit_bytes, SystemClock())
    chunks = []
    async for chunk in follower:
        chunks.append(chunk)
        if len(chunks) == 8:
            await see_out(child, trial)
            follower.finish()
    assert max(map(len, chunks)) <= CHUNK_BYTES
    return trial.home / "log.txt", chunks


async def test_a_log_below_the_limit_is_complete(bench: Bench) -> None:
    log, chunks = await _follow(bench, 200 * 2**20)

    followed = hashlib.sha256()
    for chunk in chunks:
        followed.update(chunk)
    assert followed.digest() == hashlib.sha256(log.read_bytes()).digest()
    assert sum(map(len, chunks)) == BLOCKS * (len(BLOCK) + 4)


async def test_a_log_above_the_limit_is_capped(bench: Bench) -> None:
    limit = 4 * 2**20
    log, chunks = await _follow(bench, limit)

    everything = b"".join(count.to_bytes(4, "big").replace(b"\n", b"\0") + BLOCK for count in range(BLOCKS))
    marker = b"\n[sparktrain] log capped at 4194304 bytes: the rest is dropped, set log_limit to keep more\n"
    assert b"".join(chunks) == everything[:limit] + marker + everything[-TAIL_BYTES:]
    assert log.stat().st_blocks * 512 <= limit + SLACK_BYTES
    [last] = tail_lines(log)
    assert 0 < len(last) <= 2000
    assert last.isprintable()
