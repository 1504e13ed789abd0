"""For tests of training functions: `local_context` calls one in this very process."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.testing.in_process import LocalContext, local_context

_NAMES = ("LocalContext", "local_context")
"""Imported when they are used: the other modules in here are for tests of this package."""


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'sparktrain.testing' has no attribute {name!r}")
    from sparktrain.testing import in_process

    return getattr(in_process, name)


__all__ = ["LocalContext", "local_context"]
