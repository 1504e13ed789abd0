"""Starts the process of a board, with the environment of this one."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import IO

import msgspec

from sparktrain.board.board_settings import BoardSettings
from sparktrain.errors import SpecError
from sparktrain.webserve.server_process import child_environment

PORT_VARIABLE = "TENSORBOARD_PORT"
"""The environment variable with the port of a board, unless the caller names one."""


def start_process(settings: BoardSettings, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the process, in a session of its own: Ctrl-C in a terminal goes to this process, which closes the board.

    Raises OSError.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "sparktrain.board"],
        stdin=subprocess.PIPE,
        stdout=log.fileno(),
        stderr=subprocess.STDOUT,
        env=child_environment(),
        pass_fds=[settings.descriptor],
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, which `Board` reports
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
    return process


def port_of_environment() -> tuple[int, str]:
    """The port, 0 for any free one, and its name for messages. Raises SpecError."""
    value = os.environ.get(PORT_VARIABLE, "").strip()
    if value and not value.isdecimal():
        raise SpecError(f"{PORT_VARIABLE} ({value!r}) must be a port below 65536, or 0 for any free one")
    return int(value or 0), PORT_VARIABLE if value else "port"
