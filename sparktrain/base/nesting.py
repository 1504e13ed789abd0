"""Refuses calls in a process that trains, and while a module is imported for its function.

When the module level of a file calls `sweep`, each of its trials would import the file and call `sweep` in turn.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sparktrain.errors import NestedCallError

MEMBER_KEY = "SPARKTRAIN_MEMBER"
"""Environment variable of a zygote, its members, and every process that they start."""
STEP = "write the call below `if __name__ == '__main__':`"

_member = False
_imported: list[str] = []
"""Modules that the command line is importing."""


def enter_member() -> None:
    """Refuse calls in this process and its descendants from now on. For the zygote, at its start."""
    global _member
    _member = True
    os.environ[MEMBER_KEY] = "1"


@contextmanager
def importing(place: str) -> Iterator[None]:
    """Refuse calls in all threads while `place`, a file or module, is imported for its function."""
    _imported.append(place)
    try:
        yield
    finally:
        _imported.remove(place)


def check_not_nested(call: str) -> None:
    """Raise NestedCallError where `call`, such as "sweep", is refused."""
    if _member or MEMBER_KEY in os.environ:
        raise NestedCallError(
            f"sparktrain.{call}() is called within a trial, where it would start trials that call it again; "
            f"{STEP}, and out of the training function"
        )
    if _imported:
        raise NestedCallError(
            f"sparktrain.{call}() is called while {_imported[-1]} is imported for its function, as each trial imports "
            f"it again; {STEP}"
        )


def check_imported(call: str, module: object, name: str) -> None:
    """Raises NestedCallError when `module`, which has the training function and is called `name`, calls from its own
    module level."""
    if getattr(getattr(module, "__spec__", None), "_initializing", False):  # private, but importlib uses it too
        raise NestedCallError(
            f"sparktrain.{call}() is called while module {name!r}, which has the training function, is imported, as "
            f"each trial imports it again; {STEP}"
        )
