"""A long link between two network interfaces that it makes.

    python -m tests.support.far_link NEAR FAR --delay SECONDS --loss SHARE

It prints `ready`, and carries frames until it is ended; the interfaces end with it. It needs no `netem` in the kernel.
"""

import argparse
import fcntl
import heapq
import os
import random
import select
import struct
import time
from itertools import count

_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x0002 | 0x1000
_MOST_BYTES = 2**16


def tap(name: str) -> int:
    """Make a network interface; returns the file with its frames."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP_WITHOUT_HEADER))
    return file


def carry(ends: tuple[int, int], delay_s: float, loss: float) -> None:
    """Carry frames both ways until the process is ended."""
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    rng, order = random.Random(0), count()
    waiting: list[tuple[float, int, int, bytes]] = []
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, (), (), left)[0]:
            frame = os.read(end, _MOST_BYTES)
            if rng.random() >= loss:
                heapq.heappush(waiting, (time.monotonic() + delay_s, next(order), other[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(waiting)
            try:
                os.write(end, frame)
            except OSError:  # the interface is down: the frame is lost
                continue


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs=2)
    parser.add_argument("--delay", type=float, required=True)
    parser.add_argument("--loss", type=float, required=True)
    given = parser.parse_args()
    ends = (tap(given.names[0]), tap(given.names[1]))
    print("ready", flush=True)
    carry(ends, given.delay, given.loss)


if __name__ == "__main__":
    main()
