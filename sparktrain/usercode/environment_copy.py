"""Finds the driver's environment in what is sent to executors: a run would store its secrets."""

import os

A_COPY = (
    "a copy of the driver's environment, which would reach every trial and the run directory, with its secrets; read "
    "os.environ within the function, and name what trials need of the driver's by env= or forward_env="
)
"""The end of a message."""
LEAST_SECRET = 8
LEAST = 3
"""So many variables at least are a copy: fewer are values that the user chose."""


def holds_environment(data: bytes) -> bool:
    """Whether pickled `data` has most variables of this process, names and values, in any form."""
    variables = [(os.fsencode(name), os.fsencode(value)) for name, value in os.environ.items() if value]
    half = len(variables) // 2
    held = missing = 0
    for name, value in variables:
        if name in data and value in data and any(form in data for form in _forms(name)):
            held += 1
        else:
            missing += 1
        if missing > half:  # the rest cannot change it, and data may be large
            return False
    return held > half and held >= LEAST


def is_of_environment(text: str) -> bool:
    """Whether a text is the value of a variable of this process, and long enough for a secret."""
    return len(text) >= LEAST_SECRET and text in os.environ.values()


def _forms(name: bytes) -> tuple[bytes, ...]:
    """`name` as a text or bytes of its own in a pickle, and as part of a longer text."""
    size = bytes([min(len(name), 255)])
    return b"\x8c" + size + name, b"C" + size + name, name + b"=", b"'" + name + b"'", b'"' + name + b'"'
