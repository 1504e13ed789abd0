"""Warnings about what a program asks for that means nothing here: each once in a process."""

import logging

_issued: set[str] = set()

logger = logging.getLogger("sparktrain")


def warn_once(message: str) -> None:
    """Log `message` as a warning, unless this process has logged it before."""
    if message not in _issued:
        _issued.add(message)
        logger.warning("%s", message)
