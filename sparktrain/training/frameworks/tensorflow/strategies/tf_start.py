"""Notes which line of the user's code starts TensorFlow: no strategy can connect members afterwards.

Imports TensorFlow.
"""

from tensorflow.python.eager import context

from sparktrain.training.source_homes import Homes
from sparktrain.training.user_lines import user_line


class _Noted:
    """What is known of this process."""

    line = ""


def initialized() -> bool:
    """Whether TensorFlow has initialised its devices in this process, by an op or otherwise."""
    return context.context()._context_handle is not None


def watch(homes: Homes) -> None:
    """Note the line that starts TensorFlow, if it has not started. Call it once, before the user's code runs."""
    eager = context.context()
    start = eager.ensure_initialized

    def noting() -> None:
        if not initialized():
            _Noted.line = user_line(homes)
        vars(eager).pop("ensure_initialized", None)  # the class's own is back
        start()

    if not initialized():
        eager.ensure_initialized = noting


def advice() -> str:
    """The line that has started TensorFlow, as the start of a sentence; empty if it is unknown."""
    return f"{_Noted.line} started it: move that line below; " if _Noted.line else ""
