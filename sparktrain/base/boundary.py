"""The boundary between the user's code and ours: errors that cross it point to the user's own line."""

import functools
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from sparktrain.errors import BugError, SparktrainError, SpecError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("sparktrain")

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


TERMINATED = 128 + signal.SIGTERM
"""The exit status of a driver that SIGTERM ends, as a shell shows it."""


class DriverTerminated(SystemExit):
    """SIGTERM has ended the call: its run is stored, and the program ends with status 143 unless it catches this."""

    def __init__(self, message: str = "") -> None:
        super().__init__(TERMINATED)
        self.message = message

    def __str__(self) -> str:
        return self.message


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C or SIGTERM, which no handler catches on the way to the user.

    Other threads get no Ctrl-C: there the user's code has raised it, as it may raise SystemExit.
    """
    return (
        isinstance(error, KeyboardInterrupt | DriverTerminated)
        and threading.current_thread() is threading.main_thread()
    )


def message_of(error: BaseException) -> str:
    """`str(error)`, also where the class is the user's and its `__str__` raises."""
    try:
        return str(error)
    except BaseException as broken:
        if is_interrupt(broken):
            raise
        return f"(its message cannot be shown: {type(broken).__name__})"


def trace_of(error: BaseException) -> str:
    """The traceback and the message of an error of the user's code, without the frames of this package that called it.

    An error of this package itself keeps all frames.
    """
    try:
        trace = traceback.TracebackException(*users_error(error))
        return "".join(trace.format()).rstrip()
    except Exception as broken:  # such as a cause that is no exception
        return f"{type(error).__name__}: {message_of(error)}\n(its traceback cannot be shown: {message_of(broken)})"


def users_error(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """An error of the user's code for a log, with the frames that `trace_of` shows."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.tb_next
    return type(error), error, frame if frame is not None else error.__traceback__


def lost_folder() -> SpecError | None:
    """The error of a process without its working directory, where no relative path leads; None for any other."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return SpecError(
            "the working directory of this process no longer exists, and relative paths start there: change to one "
            "that exists, by os.chdir(...) or cd, and pass dir= as an absolute path"
        )
    return None


def users_call(function: Callable[P, T]) -> Callable[P, T]:
    """Make errors of `function` end at the line that calls it, without frames of this package.

    Raises SpecError where it fails because the working directory was deleted.

    A cause that the message contains already is dropped. A bug of ours keeps all frames; so does every error in the
    log of `sparktrain` at level DEBUG.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            try:
                return function(*args, **kwargs)
            except FileNotFoundError as error:
                if isinstance(error, SparktrainError) or (lost := lost_folder()) is None:
                    raise
                raise lost from None
        except BugError:
            raise
        except (SparktrainError, KeyboardInterrupt, DriverTerminated) as error:
            logger.debug("%s raised", function.__qualname__, exc_info=True)
            if _includes_cause(error):
                error.__cause__ = None
                error.__suppress_context__ = True
            if isinstance(error, DriverTerminated):
                print(error, file=sys.stderr, flush=True)  # Python shows no message of a SystemExit with a status
            # A bare `raise` keeps the error's traceback, and adds no frame of this function.
            error.__traceback__ = None
            raise

    return called


def _includes_cause(error: BaseException) -> bool:
    """Whether the message of `error` contains that of its cause, or it has only a context."""
    cause = error.__cause__
    if cause is None:
        return True
    first = next(iter(message_of(cause).strip().splitlines()), "")
    return first.strip() in message_of(error)
