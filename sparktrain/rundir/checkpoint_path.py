"""The path of a checkpoint's file, which starts with the name that its run directory had when it was written."""

import re

_IN_RUN = re.compile(r"[^/]+(/trials/\d+/checkpoints/.+)", re.DOTALL)


def within(run: str, path: str) -> str:
    """The file of this path in the folder `run`, whatever name the run directory had before."""
    match = _IN_RUN.fullmatch(path)
    return path if match is None else run + match[1]
