"""Finds the line of the user's code that is running, for errors that name the line to move."""

import sys
import sysconfig
import traceback
from pathlib import Path

from sparktrain.training.source_homes import Homes

_NAMES = ("stdlib", "platstdlib", "purelib", "platlib")
_FOREIGN_FOLDERS = tuple({str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in _NAMES)})
"""Folders with code that is not the user's: this package, Python's own modules, installed packages."""


def named_use(use: str, homes: Homes) -> str:
    """`use`, such as `hvd.init()`, with the user's line behind it in brackets; alone where no line is known."""
    where = user_line(homes)
    return f"{use} ({where})" if where else use


def user_line(homes: Homes) -> str:
    """The innermost line of the user's code in this thread, as `train.py:12 in prepare()`; empty if there is none."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        code = frame.f_code
        if not code.co_filename.startswith((*_FOREIGN_FOLDERS, "<frozen")):
            return f"{homes.of(code.co_filename)}:{line} in {code.co_name}()"
    return ""
