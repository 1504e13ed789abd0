"""Refuses every backend of Keras but TensorFlow in a member of a gang: its ring could not average."""

import os
import sys
from types import ModuleType
from typing import Any

from sparktrain.base.patched_imports import ImportHook, LoaderAround
from sparktrain.config.environment import KERAS_BACKEND, KERAS_BACKENDS, keras_backend, refusal_in_gang
from sparktrain.protocol.member_call import MemberGang
from sparktrain.training.frameworks.contract import RefusedUseError
from sparktrain.training.source_homes import Homes
from sparktrain.training.user_lines import user_line

_CONFIG = "keras.src.backend.config"
"""The module of Keras that chooses."""
_SET = "os.putenv"
"""The event of Python for a change of the environment."""


class KerasBackendError(RefusedUseError):
    """Keras is asked for a backend that a gang cannot train with."""


def prepare(gang: MemberGang, homes: Homes) -> None:
    """Raise KerasBackendError where Keras has another backend than the gang, or the environment, wants.

    In a gang also later, where Keras gets one or is asked for one. See `Framework.joins`.
    """
    if gang.size > 1 and gang.backend.uses_tensorflow:
        _guard(homes)
    _check_preloaded()


def _guard(homes: Homes) -> None:
    if _CONFIG in sys.modules:
        _check_loaded(sys.modules[_CONFIG])
    ImportHook(around={_CONFIG: _CheckingLoader}).install()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == _SET and os.fsdecode(arguments[0]) == KERAS_BACKEND:
            place = user_line(homes) or f"the variable {KERAS_BACKEND}"
            _check((os.fsdecode(arguments[1]), place))

    # The variable may be set at any line of the function; the hook names that line, where the import of Keras would
    # only fail later.
    sys.addaudithook(audit)


def _check_preloaded() -> None:
    """Check a process that was forked from one that has imported Keras."""
    asked_for = keras_backend(os.environ)
    if _CONFIG not in sys.modules or asked_for is None:
        return
    backend = sys.modules[_CONFIG].backend()
    name, place = asked_for
    if name != backend and name in KERAS_BACKENDS:
        raise KerasBackendError(
            f"{place} asks Keras for the backend {name!r}, and the processes of this pool have imported Keras on "
            f"{backend} before: open the pool with preload=[], or leave the pool out"
        )


def _check(setting: tuple[str, str] | None) -> None:
    if setting is not None and (problem := refusal_in_gang(*setting)):
        raise KerasBackendError(problem)


def _check_loaded(config: ModuleType) -> None:
    backend = config.backend()
    setting = keras_backend(os.environ)
    _check((backend, setting[1] if setting is not None and setting[0] == backend else "the import of Keras"))


class _CheckingLoader(LoaderAround):
    """Checks what the module will choose, as that may be imported at once, and what it has chosen."""

    def exec_module(self, module: ModuleType) -> None:
        """See base class."""
        _check(keras_backend(os.environ))
        super().exec_module(module)
        _check_loaded(module)
