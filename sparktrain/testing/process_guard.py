"""Restores what a training function may change in its process, for a process that continues after the call."""

import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from sparktrain.training import no_spark, notices
from sparktrain.training.frameworks.keras import keras_patches
from sparktrain.training.frameworks.tensorflow.horovod_names import import_hook

_KERAS_PENDING = "uninitialized_variables"
"""Variables that an error in the middle of a build leaves there: the next build would initialise some of them twice."""
_KERAS_STATE = "keras.src.backend.common.global_state"
_KERAS_NAMES = "object_name_uids"
"""The entry of Keras's state that counts the uses of each layer name; a new process has none."""


@contextmanager
def guarded() -> Iterator[None]:
    """Restore the process on leaving: environment, directory, streams, signal handlers, imports, seeds, Keras's state.

    What cannot be undone stays: devices that TensorFlow has initialised, modules that were imported, threads that were
    started. Signal handlers are restored where the main thread leaves. For one thread of the process at a time.
    """
    with ExitStack() as stack:
        for keep in (_environment, _directory, _interpreter, _signals, _logging, _generators, _frameworks):
            stack.callback(keep())
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(keras_patches.put_back())
        stack.enter_context(notices.kept_apart())
        stack.enter_context(no_spark.refused())
        stack.enter_context(import_hook.installed())
        yield


def _environment() -> Callable[[], None]:
    saved_environ = dict(os.environ)

    def restore() -> None:
        for name in os.environ.keys() - saved_environ.keys():
            del os.environ[name]
        for name, value in saved_environ.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    return restore


def _directory() -> Callable[[], None]:
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mask = os.umask(0)
    os.umask(mask)

    def restore() -> None:
        os.fchdir(folder)
        os.close(folder)
        os.umask(mask)

    return restore


def _interpreter() -> Callable[[], None]:
    """The parts of `sys`; within the block, an entry of `sys.path` for the working directory names the present one."""
    names = ("argv", "path", "stdin", "stdout", "stderr", "excepthook", "displayhook")
    saved_attributes = {name: getattr(sys, name) for name in names}
    path = sys.path[:]
    argv = sys.argv[:]
    sys.path[:] = [folder or os.getcwd() for folder in path]

    def restore() -> None:
        for name, value in saved_attributes.items():
            setattr(sys, name, value)
        sys.path[:], sys.argv[:] = path, argv

    return restore


def _signals() -> Callable[[], None]:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def restore() -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # where no handler could be changed either
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                with suppress(OSError):  # of SIGKILL and SIGSTOP
                    signal.signal(number, handler)

    return restore


def _logging() -> Callable[[], None]:
    root = logging.getLogger()
    level = root.level
    handlers = root.handlers[:]

    def restore() -> None:
        root.setLevel(level)
        root.handlers[:] = handlers

    return restore


def _generators() -> Callable[[], None]:
    """Random generators of Python and numpy."""
    of_python = random.getstate()
    numpy = sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else None

    def restore() -> None:
        random.setstate(of_python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)

    return restore


def _frameworks() -> Callable[[], None]:
    """Keras's state, with the names of layers counted from 0 within, and TensorFlow's seed and eager mode."""
    restores = [keep() for keep in (_keras, _tensorflow)]

    def restore() -> None:
        for undo in restores:
            undo()

    return restore


def _keras() -> Callable[[], None]:
    state = _state_of_keras()
    saved_state = {name: _copied(value) for name, value in state.items()} if state is not None else {}
    floatx = sys.modules["keras"].config.floatx() if state is not None else ""
    if state is not None:
        state.pop(_KERAS_NAMES, None)
        state.pop(_KERAS_PENDING, None)

    def restore() -> None:
        now = _state_of_keras()
        if now is None:
            return
        now.clear()
        now.update(saved_state)
        if floatx:
            sys.modules["keras"].config.set_floatx(floatx)

    return restore


def _copied(value: Any) -> Any:
    """A copy of what Keras changes in place."""
    return value.copy() if isinstance(value, list | dict) else value


def _state_of_keras() -> dict[str, Any] | None:
    module = sys.modules.get(_KERAS_STATE)
    return vars(module.GLOBAL_STATE_TRACKER) if module is not None else None


def _tensorflow() -> Callable[[], None]:
    old_context = sys.modules.get("tensorflow.python.eager.context")
    seed = old_context.global_seed() if old_context is not None else None
    eagerly = sys.modules["tensorflow"].config.functions_run_eagerly() if old_context is not None else False

    def restore() -> None:
        now = sys.modules.get("tensorflow.python.eager.context")
        if now is None or "tensorflow" not in sys.modules:
            return
        if now.global_seed() != seed:
            now.set_global_seed(seed)
        if (tensorflow := sys.modules["tensorflow"]).config.functions_run_eagerly() is not eagerly:
            tensorflow.config.run_functions_eagerly(eagerly)

    return restore
