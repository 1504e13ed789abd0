"""For tests of users: `local_context` calls a training function in this very process, and `SamplerContract` has the
tests of a sampler."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.testing.in_process import LocalContext, local_context
    from sparktrain.testing.sampler_contract import SamplerContract

_HOMES = {"LocalContext": "in_process", "SamplerContract": "sampler_contract", "local_context": "in_process"}
"""Imported when they are used: the other modules in here are for tests of this package."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"sparktrain.testing.{_HOMES[name]}"), name)


__all__ = ["LocalContext", "SamplerContract", "local_context"]
