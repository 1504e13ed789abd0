"""Handles the user's own callbacks of a `fit`: their order, which of them write files, and their state.

Keras gives a callback the model but not its list: the list is on the stack of the call.
"""

import copy
import inspect
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

import keras
import numpy as np
from keras.src.callbacks.monitor_callback import MonitorCallback
from keras.src.callbacks.orbax_checkpoint import OrbaxCheckpoint

from sparktrain.config.uses import codes
from sparktrain.errors import SpecError
from sparktrain.training.checkpoint.extras import pack
from sparktrain.training.data.position import Position
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.fit_reader import element_spec, fit_reader, is_ordered
from sparktrain.training.notices import notice

_WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, OrbaxCheckpoint)
_SHOWN_ALONE = (keras.callbacks.TensorBoard, keras.callbacks.RemoteMonitor)
"""Callbacks with output that the function never reads."""
_NO_STATE = {"params", "model", "_model"}
STOP = "stop_training"
_STEP_METHODS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_COUNTERS = {
    keras.callbacks.ModelCheckpoint: {"best", "_batches_seen_since_last_saving", "_last_batch_seen"},
    keras.callbacks.CSVLogger: {"keys"},
    keras.callbacks.TensorBoard: {"_global_train_batch", "_global_test_batch"},
    keras.callbacks.SwapEMAWeights: {"_ema_weights_in_model"},
}
"""The state of those Keras callbacks that have other attributes too, or hidden ones."""

State = dict[str, Any]


class InternalCallback(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """A callback of this package."""

    last = False
    """Whether it comes after the user's own callbacks."""


class EventStage(Enum):
    """How far an event of `fit` is: which callbacks are called."""

    BEFORE = "those of this package before the user's"
    USERS = "the user's"
    AFTER = "those of this package after the user's"


class SilencedCallback(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Replaces a callback in the list where only the chief writes its files."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.original = original


class Arrange(InternalCallback):
    """The first internal callback: orders the callbacks of a fit, and lets only the chief write shared files."""

    def __init__(self, silences: bool, own_folders: tuple[str, ...], on_data: Callable[[Any, bool], None]) -> None:
        """`silences`: another member writes shared files. `own_folders` belong to this member alone; `on_data` gets the
        element spec of the batches that fit reads, and whether they have the same order in each epoch."""
        super().__init__()
        self._silences = silences
        self._own_folders = tuple(os.path.realpath(folder) + os.sep for folder in own_folders)
        self._on_data = on_data

    def set_model(self, model: Any) -> None:
        """Raises SpecError for a callback that would also restore the training."""
        super().set_model(model)
        if (callbacks := listed(self)) is None:
            return
        if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in callbacks.callbacks):
            raise SpecError(
                "BackupAndRestore is among the callbacks, and ctx.keras_callbacks() saves and resumes already, all "
                "members together: leave it out, and set how often to save by ctx.keras_callbacks(checkpoint_every=100)"
            )
        # Before Keras calls any of them: a CSVLogger opens its file in on_train_begin.
        if self._silences:
            entries = [SilencedCallback(entry) if self._shared(entry) else entry for entry in callbacks.callbacks]
            callbacks.callbacks[:] = entries

    def on_train_begin(self, logs: Any = None) -> None:
        """Move the callbacks that come last to the end; `CallbackStateKeeper`, one of them, orders the others."""
        if (callbacks := listed(self)) is None:
            return
        for callback in [entry for entry in callbacks.callbacks if isinstance(entry, InternalCallback) and entry.last]:
            callbacks.callbacks.remove(callback)
            callbacks.callbacks.append(callback)
        if (reader := fit_reader()) is not None:
            self._on_data(element_spec(reader), is_ordered(reader))

    def _shared(self, callback: Any) -> bool:
        if isinstance(callback, _SHOWN_ALONE):
            return True
        return isinstance(callback, _WRITERS) and not os.path.realpath(_file(callback)).startswith(self._own_folders)


@dataclass
class ResumedState:
    """The state with which a fit resumes that an earlier process has interrupted."""

    states: State = field(default_factory=dict)
    """States of the user's callbacks, by name."""
    values: list[tuple[Any, Any]] = field(default_factory=list)
    """The variables of the model and its optimizer, each with its saved value."""
    midway: bool = False
    """Whether that process has started the epoch to resume in."""
    own: bool = False
    """Whether the members have their own statistics again, and not the chief's."""
    drawn: int = 0
    """A digest of the random numbers that this process had drawn when its fit started."""
    sent: bool = False
    """Whether it is the state of members that train on, and this process takes the rank of one that was lost."""
    agreed: Sequence[int] = ()
    """What those members had agreed on."""
    appending: list[Any] = field(default_factory=list)
    """The loggers that append to the file of that process, in this fit only."""


class CallbackStateKeeper(InternalCallback):
    """Starts the user's callbacks with their state at the resume of the fit, and returns it for checkpoints.

    The state of a callback is the result of `get_state`, if it has that and `set_state`, and else its attributes that
    have changed since the start of the fit: numbers, strings, arrays, and lists and dicts of them; of Keras's own
    callbacks only public ones. A resumed fit, and an epoch that resumes in its middle, do not start a second time: the
    keeper undoes what callbacks do to the model at that point.
    """

    last = True

    def __init__(self, position: Position, past: ResumedState) -> None:
        """`past` is filled before `on_train_begin`, and empty for a fit that starts."""
        super().__init__()
        self.position = position
        self._past = past
        self._callbacks: dict[str, Any] = {}
        self._initial: dict[str, dict[str, int]] = {}
        self._noticed: set[str] = set()

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._callbacks = {}
        if (callbacks := listed(self)) is not None:
            external = [callback for callback in callbacks.callbacks if not isinstance(callback, InternalCallback)]
            internal = [callback for callback in callbacks.callbacks if isinstance(callback, InternalCallback)]
            first = [entry for entry in internal if not entry.last]
            last = [entry for entry in internal if entry.last]
            callbacks.callbacks = first + external + last  # a new list: Keras iterates over the old one
            self._callbacks = dict(
                _named(entry.original if isinstance(entry, SilencedCallback) else entry for entry in external)
            )
        self._initial = {
            name: {key: _digest(value) for key, value in _attributes(entry)} for name, entry in self._callbacks.items()
        }
        while self._past.appending:
            self._past.appending.pop().append = False
        self._restore()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if self._past.midway:
            self._restore()
        self._past.midway = False
        self._past.values = []

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        self._past.values = []

    def states(self) -> State:
        """`ResumedState.states` for a resume from here. Raises TypeError for a wrong `get_state`."""
        return {name: state for name, callback in self._callbacks.items() if (state := self._state(name, callback))}

    def _state(self, name: str, callback: Any) -> State:
        if _has_state_methods(callback):
            return {"": callback.get_state()}
        state = {}
        initial = self._initial[name]
        for key, value in _attributes(callback):
            if _digest(value) == initial.get(key):
                continue
            try:
                state[key] = _plain(value)
            except TypeError:
                self._notice(f"{type(callback).__name__}.{key} ({type(value).__name__})", callback)
        return state

    def _notice(self, attribute: str, callback: Any) -> None:
        if attribute not in self._noticed and not is_of_keras(callback):
            self._noticed.add(attribute)
            notice(
                f"{attribute} is not saved in checkpoints, and gets its initial value after a restart: give the "
                "callback get_state() and set_state(state)"
            )

    def _restore(self) -> None:
        for variable, value in self._past.values:
            model_state.put_back(variable, value)
        self.take(self._past.states)

    def take(self, states: State) -> None:
        """Give the user's callbacks what `states` has returned."""
        for name, state in states.items():
            if (callback := self._callbacks.get(name)) is None:
                continue
            if "" in state:
                callback.set_state(state[""])
                continue
            for key, value in state.items():
                _set(callback, key, value)


def listed(callback: Any) -> Any:
    """The list of callbacks that has just called `callback`; None for any other caller."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList) and callback in caller.callbacks:
            return caller
    return None


def continue_files(callback: Any, past: ResumedState, epoch: int | None) -> None:
    """Keep the files of callbacks for a fit that resumes in `epoch`, or is skipped (None); print which are gone."""
    callbacks = listed(callback)
    for index, peer in enumerate(callbacks.callbacks if callbacks is not None else ()):
        if not isinstance(peer, keras.callbacks.ModelCheckpoint | keras.callbacks.CSVLogger):
            continue
        path = _file(peer)
        if isinstance(peer, keras.callbacks.CSVLogger) and epoch is None:
            callbacks.callbacks[index] = SilencedCallback(peer)
        elif isinstance(peer, keras.callbacks.CSVLogger) and not peer.append:
            peer.append = True
            past.appending.append(peer)
            _cut(path, peer.sep, epoch or 0)
        if epoch != 0 and "{" not in path and not os.path.exists(path):
            notice(
                f"{type(peer).__name__} wrote {path}, which is gone with the process that wrote it: give "
                "it a path in storage that outlives a member"
            )


def end_with(callback: Any, epoch_logs: dict[str, float]) -> None:
    """Have the callbacks of a fit that runs no epoch end with the logs of its last one, of an earlier process."""
    callbacks = listed(callback)
    if callbacks is None:
        return

    def on_train_end(logs: Any = None) -> None:
        del callbacks.on_train_end  # another fit may have the same list
        callbacks.on_train_end(epoch_logs)

    callbacks.on_train_end = on_train_end


def _cut(path: str, separator: str, epoch: int) -> None:
    """Remove what a CSVLogger has written of this epoch and later ones, which are repeated."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            number = line.partition(separator)[0]
            # Half a line is what a process has left that was killed while it wrote.
            if line.endswith("\n") and not (number.isdecimal() and int(number) >= epoch):
                file.write(line)


def stops_midway(callback: Any) -> bool:
    """Whether a user's callback is called at each step, and its code may stop training there."""
    callbacks = listed(callback)
    return callbacks is not None and any(
        not isinstance(peer, InternalCallback)
        and (not is_of_keras(peer) or isinstance(peer, keras.callbacks.LambdaCallback | keras.callbacks.TerminateOnNaN))
        and not is_default(peer, *_STEP_METHODS)
        and (isinstance(peer, keras.callbacks.TerminateOnNaN) or _names_stop(peer))
        for peer in callbacks.callbacks
    )


def _names_stop(peer: Any) -> bool:
    """Whether the code of a callback, and of what it refers to, has the name of the attribute that stops training."""
    return any(
        STOP in code.co_names or STOP in code.co_consts
        for function in _functions(peer, set())
        for code, _ in codes(function)
    )


def _functions(peer: Any, seen_ids: set[int]) -> Iterator[Any]:
    """The functions of a callback's classes and attributes, and of the callbacks in its attributes."""
    seen_ids.add(id(peer))
    for kind in type(peer).__mro__:
        if not kind.__module__.startswith("keras."):
            yield from filter(inspect.isfunction, map(inspect.unwrap, vars(kind).values()))
    for value in vars(peer).values():
        if inspect.isfunction(value) or inspect.ismethod(value):
            yield value
        elif isinstance(value, keras.callbacks.Callback) and id(value) not in seen_ids:
            yield from _functions(value, seen_ids)


def is_default(callback: Any, *methods: str) -> bool:
    """Whether a callback leaves these methods of Keras as they are, which do nothing."""
    return all(getattr(getattr(callback, method), "_is_default", False) for method in methods)


def is_of_keras(callback: Any) -> bool:
    """Whether Keras itself has the class of the callback."""
    return type(callback).__module__.startswith("keras.")


# ---- attributes


def _named(callbacks: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    counts: dict[str, int] = {}
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.ProgbarLogger):
            continue
        kind = type(callback).__name__
        counts[kind] = counts.get(kind, 0) + 1
        yield f"{kind}#{counts[kind]}", callback


def _has_state_methods(callback: Any) -> bool:
    return callable(getattr(callback, "get_state", None)) and callable(getattr(callback, "set_state", None))


def _attributes(callback: Any) -> Iterator[tuple[str, Any]]:
    counters = next((names for kind, names in _COUNTERS.items() if isinstance(callback, kind)), None)
    chosen = counters if is_of_keras(callback) else None
    kind: Any = type(callback)
    internal = set() if counters is None else _names_in_keras(kind) - counters
    for name, value in vars(callback).items():
        if name in _NO_STATE or name in internal or (chosen is not None and name not in chosen):
            continue
        if chosen is None and name.startswith("_") and is_of_keras(callback):
            continue
        if name == "min_delta" and isinstance(callback, MonitorCallback):
            continue  # its sign is set with the first epoch of each process
        yield name, value


@cache
def _names_in_keras(kind: Any) -> set[str]:
    """The names in the code of a class that it has from Keras: attributes of its own have others."""
    functions = [
        value for base in kind.__mro__ if base.__module__.startswith("keras.") for value in vars(base).values()
    ]
    return {name for function in filter(inspect.isfunction, functions) for name in function.__code__.co_names}


def _set(callback: Any, name: str, value: Any) -> None:
    """Set an attribute; lists, dicts and variables keep their identity: the function may hold them too."""
    held: Any = getattr(callback, name, None)
    value = copy.deepcopy(value)
    if isinstance(held, list) and isinstance(value, list):
        held[:] = value
    elif isinstance(held, dict) and isinstance(value, dict):
        held.clear()
        held.update(value)
    elif hasattr(held, "assign"):
        held.assign(value)
    else:
        setattr(callback, name, tuple(value) if isinstance(held, tuple) else value)


def _plain(value: Any) -> Any:
    """A copy of a value that a checkpoint can carry. Raises TypeError for any other."""
    plain_copy = _converted(value)
    pack({"": plain_copy})
    return plain_copy


def _converted(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _converted(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_converted(child) for child in value]
    if not hasattr(value, "__array__"):
        return value
    array = np.array(value.__array__(), order="C")
    array.flags.writeable = False  # a copy already: it needs no other
    return array


def _digest(value: Any) -> int:
    """A number that changes with a value that a checkpoint can carry; for other objects, with their size."""
    if isinstance(value, Mapping):
        return zlib.crc32(repr([(repr(key), _digest(child)) for key, child in value.items()]).encode())
    if isinstance(value, list | tuple):
        return zlib.crc32(repr([_digest(child) for child in value]).encode())
    if value is None or isinstance(value, bool | int | float | str):
        return zlib.crc32(repr(value).encode())
    if hasattr(value, "__array__") and (array := np.asarray(value)).dtype != object:
        return zlib.crc32(np.ascontiguousarray(array).tobytes(), zlib.crc32(f"{array.dtype} {array.shape}".encode()))
    return zlib.crc32(repr((id(value), len(value) if hasattr(value, "__len__") else 0)).encode())


# ---- files and data


def _file(callback: Any) -> str:
    paths = (getattr(callback, name) for name in ("filepath", "filename", "directory") if hasattr(callback, name))
    return str(next(paths))
