"""What native libraries and JVMs write to stderr, without what tells nobody anything."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sparktrain.threads import spawn

OF_TENSORFLOW = re.compile(
    rb"[IW]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] |WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions:|E\d{4} .*cuda_platform.*cuInit"
)
"""How lines begin that tell how TensorFlow finds this machine: the driver's, on which nothing trains."""
_LAST_LINES_S = 2.0
"""How long what was written last is waited for, where a process that was started meanwhile may hold the pipe."""


def pass_on(reading: int, noise: re.Pattern[bytes], write: Callable[[bytes], object], ended: threading.Event) -> None:
    """`write` each line of a pipe that does not begin as `noise`, until nobody writes any more. Blocks."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not noise.match(line):
                with suppress(OSError):  # nobody reads it any more
                    write(line)
    ended.set()


@contextmanager
def stderr_without(noise: re.Pattern[bytes]) -> Iterator[None]:
    """Keep lines that begin as `noise` from this process' stderr, whoever writes them. For one thread at a time."""
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    reading, writing = os.pipe()
    ended = threading.Event()
    spawn(lambda: pass_on(reading, noise, lambda line: os.write(kept, line), ended), "sparktrain-stderr")
    _flush()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, 2)
        if ended.wait(_LAST_LINES_S):
            os.close(kept)


def _flush() -> None:
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # closed
            sys.stderr.flush()
