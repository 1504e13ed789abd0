"""Spans: where the processes of a run spend their time, for `make profile`.

They are off unless the environment variable `SPARKTRAIN_SPANS` names a folder. Then each process appends to a file of
its own there, also a forked one that ends without cleaning up. A span that is off is one object that does nothing.
"""

import os
import threading
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from sparktrain.base.clock import now_ns, thread_ns

FOLDER_KEY = "SPARKTRAIN_SPANS"
"""The environment variable that turns spans on, for the process that has it and those that it starts."""

_folder = os.environ.get(FOLDER_KEY)
_off = nullcontext()
_open_spans = threading.local()


class Spent(Struct, frozen=True):
    """What a process has spent in one stage, without the spans inside of it."""

    stage: str
    wall_ns: int
    cpu_ns: int
    """Of the thread."""


class _Span:
    """A span of this thread that is on."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._inner_wall_ns = self._inner_cpu_ns = 0
        """Of the spans inside of it."""

    def __enter__(self) -> None:
        self._pid = os.getpid()
        self._outer: _Span | None = getattr(_open_spans, "newest", None)
        _open_spans.newest = self
        self._wall_ns = now_ns()
        self._cpu_ns = thread_ns()

    def __exit__(self, *raised: object) -> None:
        cpu_ns = thread_ns() - self._cpu_ns
        wall_ns = now_ns() - self._wall_ns
        _open_spans.newest = self._outer
        if os.getpid() != self._pid:
            return  # a process that was forked within
        if self._outer is not None:
            self._outer._inner_wall_ns += wall_ns
            self._outer._inner_cpu_ns += cpu_ns
        line = f"{self._stage}\t{wall_ns - self._inner_wall_ns}\t{cpu_ns - self._inner_cpu_ns}\n"
        with open(f"{_folder}/{os.getpid()}", "a") as file:
            file.write(line)


def span(stage: str) -> "nullcontext[None] | _Span":
    """Time what runs within `with span(stage):` in this thread, where spans are on. Any thread may; never blocks long.

    Not around an `await`: what other tasks do meanwhile would count.
    """
    return _off if _folder is None else _Span(stage)


def read_spans(folder: Path) -> list[Spent]:
    """What all processes have spent so far, in no order. Raises OSError."""
    lines = [line.split("\t") for file in folder.iterdir() for line in file.read_text().splitlines()]
    return [Spent(stage, int(wall_ns), int(cpu_ns)) for stage, wall_ns, cpu_ns in lines]
