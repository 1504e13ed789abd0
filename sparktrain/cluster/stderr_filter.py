"""Filters what native libraries and JVMs write to stderr: lines that inform no user are dropped."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sparktrain.base.threads import spawn

OF_TENSORFLOW = re.compile(
    rb"[IW]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] |WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions:|E\d{4} .*cuda_platform.*cuInit"
)
"""The start of lines about how TensorFlow sees this machine: the driver's, on which nothing trains."""
_LAST_LINES_S = 2.0
"""How long to wait for the last lines, where a process started meanwhile may hold the pipe open."""


def pass_on(reading: int, noise: re.Pattern[bytes], write: Callable[[bytes], object], ended: threading.Event) -> None:
    """`write` each line of a pipe that does not start with `noise`, until all writers have closed it. Blocks."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not noise.match(line):
                with suppress(OSError):  # the reader has gone
                    write(line)
    ended.set()


@contextmanager
def stderr_without(noise: re.Pattern[bytes]) -> Iterator[None]:
    """Drop lines that start with `noise` from stderr of this process and its children. For one thread at a time."""
    try:
        saved_fd = os.dup(2)
    except OSError:  # this process has no stderr
        yield
        return
    reading, writing = os.pipe()
    ended = threading.Event()
    spawn(lambda: pass_on(reading, noise, lambda line: os.write(saved_fd, line), ended), "sparktrain-stderr")
    _flush()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        _flush()
        os.dup2(saved_fd, 2)
        # A child may hold the pipe open: then the thread still writes to this descriptor, and the next file would get
        # its number.
        if ended.wait(_LAST_LINES_S):
            os.close(saved_fd)


def _flush() -> None:
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # closed
            sys.stderr.flush()
