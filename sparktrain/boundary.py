"""The boundary between the user's code and ours: errors that cross it point to the user's own line."""

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sparktrain.errors import BugError, SparktrainError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("sparktrain")


def users_call(function: Callable[P, T]) -> Callable[P, T]:
    """Make errors of `function` end at the line that calls it, without frames of this package.

    A cause that the message contains already is dropped. A bug of ours keeps all frames; so does every error in the
    log of `sparktrain` at level DEBUG.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BugError:
            raise
        except (SparktrainError, KeyboardInterrupt) as error:
            logger.debug("%s raised", function.__qualname__, exc_info=True)
            if _said(error):
                error.__cause__, error.__suppress_context__ = None, True
            # A bare `raise` keeps the error's traceback, and adds no frame of this function.
            error.__traceback__ = None
            raise

    return called


def _said(error: BaseException) -> bool:
    """Whether the message of `error` contains that of its cause, or it has only a context."""
    cause = error.__cause__
    if cause is None:
        return True
    first = next(iter(str(cause).strip().splitlines()), "")
    return first.strip() in str(error)
