"""What the processes that serve pages share: the socket that they inherit, their environment, and how they end."""

import os
import select
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from sparktrain.errors import SpecError

ANYWHERE = ("", "0.0.0.0", "::")
"""Addresses that stand for every address of this machine."""

_LOOK_S = 1.0
_TAIL_BYTES = 4096
_ROOT = str(Path(__file__).parents[2])


def listening_on(bind: str, number: int, subject: str) -> socket.socket:
    """A socket that listens on a port, 0 for any free one; `subject` names the port. Raises SpecError."""
    if not 0 <= number < 2**16:
        raise SpecError(f"{subject} ({number}) must be a port below 65536, or 0 for any free one")
    try:
        family = socket.getaddrinfo(bind or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((bind, number), family=family)
    except OSError as error:
        raise SpecError(
            f"{subject} ({number}) cannot be had on {bind or 'this machine'}: {error.strerror or error}; "
            "choose another, or 0 for any free one"
        ) from error


def child_environment() -> dict[str, str]:
    """The environment of a process that serves: this one's, with this sparktrain first on its path."""
    path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def end_with(parent: int, clean_up: Callable[[], None] = lambda: None) -> None:
    """Wait until standard input ends or `parent` is gone, call `clean_up`, and end this process. Blocks.

    It does not wait for other threads: those of a server write nothing that would be lost.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_S)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            break
    clean_up()
    os._exit(0)


def last_line(log: IO[bytes]) -> str:
    """The last line of a process's log, as the end of a message."""
    descriptor = log.fileno()
    start = max(0, os.fstat(descriptor).st_size - _TAIL_BYTES)
    lines = os.pread(descriptor, _TAIL_BYTES, start).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last}" if last else ""
