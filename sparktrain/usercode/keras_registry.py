"""What the user's code has registered with Keras: a saved model names its classes and functions by that."""

import logging
from typing import Any

from sparktrain.usercode.imports import Sources, imports_of_function
from sparktrain.usercode.keras_objects import LIBRARIES, registered_by_user
from sparktrain.usercode.pickler import ScriptPickler, Sink

MOST_BYTES = 2**20
"""Of one class or function that is registered and that the training function does not name."""
_USE_KERAS = frozenset({*LIBRARIES, "tensorflow"})

logger = logging.getLogger("sparktrain")


def registered(pickler: ScriptPickler, function: Any) -> dict[str, dict[str, Any]]:
    """What the user's code has registered, by library and name: objects that `pickler` has pickled by value, and
    pickles of all others, for a `function` that uses Keras. Imports nothing.

    A model that a trial loads may have a class that its code does not name.
    """
    registry: dict[str, dict[str, Any]] = {}
    uses: bool | None = None
    for library, name, value in registered_by_user():
        if pickler.travels(value):
            registry.setdefault(library, {})[name] = value
            continue
        if uses is None:
            uses = _uses_keras(function)
        # Pickled alone and only here: one registered class that cannot be pickled must not keep the function from
        # executors.
        if uses and (data := _alone(name, value)) is not None:
            registry.setdefault(library, {})[name] = data
    return registry


def _uses_keras(function: Any) -> bool:
    modules = imports_of_function(function).modules
    imported = modules | Sources().imports_of_modules(modules).modules
    return any(name.partition(".")[0] in _USE_KERAS for name in imported)


def _alone(name: str, value: Any) -> bytes | None:
    sink = Sink(MOST_BYTES, keep=True)
    try:
        ScriptPickler(sink).dump(value)
    except Exception as error:  # a trial that needs it has Keras's own error
        logger.debug("%s stays unknown to Keras in trials: %s", name, error)
        return None
    return sink.getvalue()
