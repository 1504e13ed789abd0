"""The user's own callbacks in a `fit`, beside ours: their order, which of them write files, and their state.

Keras hands a callback the model, and not the list that it is in: the list is found on the stack of the call.
"""

import copy
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras.src.callbacks.monitor_callback import MonitorCallback
from keras.src.callbacks.orbax_checkpoint import OrbaxCheckpoint

from sparktrain.errors import SpecError
from sparktrain.training.checkpoint.extras import pack
from sparktrain.training.data.position import Position
from sparktrain.training.notices import notice

_WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, OrbaxCheckpoint)
_SHOWN_ALONE = (keras.callbacks.TensorBoard, keras.callbacks.RemoteMonitor)
"""Those whose output nobody reads back in the function."""
_NO_STATE = {"params", "model", "_model"}
_COUNTERS = {
    keras.callbacks.ModelCheckpoint: {"best", "_batches_seen_since_last_saving", "_last_batch_seen"},
    keras.callbacks.CSVLogger: {"keys"},
    keras.callbacks.TensorBoard: {"_global_train_batch", "_global_test_batch"},
    keras.callbacks.SwapEMAWeights: {"_ema_weights_in_model"},
}
"""What counts as the state of Keras's callbacks whose attributes are more than that, or are hidden."""

State = dict[str, Any]


class Ours(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """A callback of this package."""

    last = False
    """Whether it goes after the user's own callbacks."""


class Silent(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
    """Stands in the list for a callback whose files the chief writes."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.original = original


class Arrange(Ours):
    """The first of ours: puts the callbacks of a fit in order, and lets the chief alone write what members share."""

    def __init__(self, rank: int, own_folders: tuple[str, ...], tell: Callable[[Any], None]) -> None:
        """`own_folders` are those that no other member has; `tell` is told the spec of the batches that fit reads."""
        super().__init__()
        self._rank = rank
        self._own = tuple(os.path.realpath(each) + os.sep for each in own_folders)
        self._tell = tell

    def set_model(self, model: Any) -> None:
        """Raises SpecError for a callback that would restore the training, too."""
        super().set_model(model)
        if (callbacks := listed(self)) is None:
            return
        if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in callbacks.callbacks):
            raise SpecError(
                "BackupAndRestore is among the callbacks, and ctx.keras_callbacks() saves and resumes already, all "
                "members together: leave it out, and say by ctx.keras_callbacks(checkpoint_every=100) how often to save"
            )
        if self._rank:
            found = [Silent(each) if self._shared(each) else each for each in callbacks.callbacks]
            callbacks.callbacks[:] = found

    def on_train_begin(self, logs: Any = None) -> None:
        """Move those that come last to the end; `CallbackStateKeeper`, one of them, puts the others in order."""
        if (callbacks := listed(self)) is None:
            return
        for each in [each for each in callbacks.callbacks if isinstance(each, Ours) and each.last]:
            callbacks.callbacks.remove(each)
            callbacks.callbacks.append(each)
        if (spec := _batches()) is not None:
            self._tell(spec)

    def _shared(self, callback: Any) -> bool:
        if isinstance(callback, _SHOWN_ALONE):
            return True
        return isinstance(callback, _WRITERS) and not os.path.realpath(_file(callback)).startswith(self._own)


@dataclass
class Past:
    """What a fit goes on with, where a former process was within it."""

    states: State = field(default_factory=dict)
    """Of the user's callbacks, by name."""
    values: list[tuple[Any, Any]] = field(default_factory=list)
    """The variables of the model and its optimizer, each with the value that it had."""
    midway: bool = False
    """Whether the epoch to go on in was begun by that process."""
    appending: list[Any] = field(default_factory=list)
    """The loggers that add to the file of that process, in this fit alone."""


class CallbackStateKeeper(Ours):
    """Has the user's callbacks begin with the state that they had where the fit goes on, and tells it for checkpoints.

    The state of a callback is what it returns from `get_state`, if it has that and `set_state`, and else its attributes
    which have changed since the fit began: numbers, texts, arrays, and lists and dicts of them; of Keras's own those
    that are public. Neither the beginning of a fit that goes on, nor that of an epoch that goes on in its middle, is
    made a second time: what callbacks do to the model then is undone.
    """

    last = True

    def __init__(self, position: Position, past: Past) -> None:
        """`past` is filled before `on_train_begin`; empty where the fit begins."""
        super().__init__()
        self.position = position
        self._past = past
        self._callbacks: dict[str, Any] = {}
        self._began: dict[str, dict[str, int]] = {}
        self._told: set[str] = set()

    def on_train_begin(self, logs: Any = None) -> None:
        """See base class."""
        self._callbacks = {}
        if (callbacks := listed(self)) is not None:
            own = [each for each in callbacks.callbacks if not isinstance(each, Ours)]
            ours = [each for each in callbacks.callbacks if isinstance(each, Ours)]
            first, last = [each for each in ours if not each.last], [each for each in ours if each.last]
            callbacks.callbacks = first + own + last  # another list: Keras is going through this one
            self._callbacks = dict(_named(each.original if isinstance(each, Silent) else each for each in own))
        self._began = {
            name: {key: _digest(value) for key, value in _attributes(each)} for name, each in self._callbacks.items()
        }
        while self._past.appending:
            self._past.appending.pop().append = False
        self._restore()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See base class."""
        if self._past.midway:
            self._restore()
        self._past.midway, self._past.values = False, []

    def on_train_end(self, logs: Any = None) -> None:
        """See base class."""
        self._past.values = []

    def states(self) -> State:
        """What is to be in `Past.states` where the fit goes on from here. Raises TypeError for a wrong `get_state`."""
        return {name: state for name, each in self._callbacks.items() if (state := self._state(name, each))}

    def _state(self, name: str, callback: Any) -> State:
        if _tells(callback):
            return {"": callback.get_state()}
        found, began = {}, self._began[name]
        for key, value in _attributes(callback):
            if _digest(value) == began.get(key):
                continue
            try:
                found[key] = _plain(value)
            except TypeError:
                self._tell(f"{type(callback).__name__}.{key} ({type(value).__name__})", callback)
        return found

    def _tell(self, attribute: str, callback: Any) -> None:
        if attribute not in self._told and not _of_keras(callback):
            self._told.add(attribute)
            notice(
                f"{attribute} is not saved in checkpoints, and begins anew after a restart: give the "
                "callback get_state() and set_state(state)"
            )

    def _restore(self) -> None:
        for variable, value in self._past.values:
            variable.assign(value)
        for name, state in self._past.states.items():
            if (callback := self._callbacks.get(name)) is None:
                continue
            if "" in state:
                callback.set_state(state[""])
                continue
            for key, value in state.items():
                _set(callback, key, value)


def listed(callback: Any) -> Any:
    """The list of callbacks that has just called `callback`; None where it was called in another way."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        found = frame.f_locals.get("self")
        if isinstance(found, keras.callbacks.CallbackList) and callback in found.callbacks:
            return found
    return None


def continue_files(callback: Any, past: Past, epoch: int | None) -> None:
    """Have what callbacks wrote stay where a fit goes on in `epoch`, or is passed by (None); say what is gone."""
    callbacks = listed(callback)
    for index, each in enumerate(callbacks.callbacks if callbacks is not None else ()):
        if not isinstance(each, keras.callbacks.ModelCheckpoint | keras.callbacks.CSVLogger):
            continue
        path = _file(each)
        if isinstance(each, keras.callbacks.CSVLogger) and epoch is None:
            callbacks.callbacks[index] = Silent(each)
        elif isinstance(each, keras.callbacks.CSVLogger) and not each.append:
            each.append = True
            past.appending.append(each)
            _cut(path, each.sep, epoch or 0)
        if epoch != 0 and "{" not in path and not os.path.exists(path):
            notice(
                f"{type(each).__name__} wrote {path}, which is gone with the process that wrote it: give "
                "it a path in storage that outlives a member"
            )


def _cut(path: str, separator: str, epoch: int) -> None:
    """Drop what a CSVLogger has written of this epoch and later ones, which come again."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            number = line.partition(separator)[0]
            if line.endswith("\n") and not (number.isdecimal() and int(number) >= epoch):
                file.write(line)


def stops_midway(callback: Any) -> bool:
    """Whether the list of callbacks has one of the user's that is called after each step, and so may stop there."""
    callbacks = listed(callback)
    return callbacks is not None and any(
        not isinstance(each, Ours)
        and (not _of_keras(each) or isinstance(each, keras.callbacks.LambdaCallback | keras.callbacks.TerminateOnNaN))
        and not all(getattr(method, "_is_default", False) for method in (each.on_train_batch_end, each.on_batch_end))
        for each in callbacks.callbacks
    )


# ---- attributes


def _named(callbacks: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for each in callbacks:
        if isinstance(each, keras.callbacks.ProgbarLogger):
            continue
        kind = type(each).__name__
        seen[kind] = seen.get(kind, 0) + 1
        yield f"{kind}#{seen[kind]}", each


def _of_keras(callback: Any) -> bool:
    return type(callback).__module__.startswith("keras.")


def _tells(callback: Any) -> bool:
    return callable(getattr(callback, "get_state", None)) and callable(getattr(callback, "set_state", None))


def _attributes(callback: Any) -> Iterator[tuple[str, Any]]:
    chosen = next((names for kind, names in _COUNTERS.items() if type(callback) is kind), None)
    for name, value in vars(callback).items():
        if name in _NO_STATE or (chosen is not None and name not in chosen):
            continue
        if chosen is None and name.startswith("_") and _of_keras(callback):
            continue
        if name == "min_delta" and isinstance(callback, MonitorCallback):
            continue  # its sign is set with the first epoch of each process
        yield name, value


def _set(callback: Any, name: str, value: Any) -> None:
    """Lists, dicts and variables keep their identity: the function may hold them, too."""
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
    """A copy of what a checkpoint can have. Raises TypeError for anything else."""
    found = _converted(value)
    pack({"": found})
    return found


def _converted(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _converted(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_converted(each) for each in value]
    if not hasattr(value, "__array__"):
        return value
    array = np.array(value.__array__(), order="C")
    array.flags.writeable = False  # a copy already: nobody needs another one
    return array


def _digest(value: Any) -> int:
    """A number that changes with the value, as far as a checkpoint could have it; of other objects, with its size."""
    if isinstance(value, Mapping):
        return zlib.crc32(repr([(repr(key), _digest(each)) for key, each in value.items()]).encode())
    if isinstance(value, list | tuple):
        return zlib.crc32(repr([_digest(each) for each in value]).encode())
    if value is None or isinstance(value, bool | int | float | str):
        return zlib.crc32(repr(value).encode())
    if hasattr(value, "__array__") and (array := np.asarray(value)).dtype != object:
        return zlib.crc32(np.ascontiguousarray(array).tobytes(), zlib.crc32(f"{array.dtype} {array.shape}".encode()))
    return zlib.crc32(repr((id(value), len(value) if hasattr(value, "__len__") else 0)).encode())


# ---- files and data


def _file(callback: Any) -> str:
    found = (getattr(callback, name) for name in ("filepath", "filename", "directory") if hasattr(callback, name))
    return str(next(found))


def _batches() -> Any:
    """The spec of the batches that the `fit` on the stack reads; None where it cannot be told."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        reader = frame.f_locals.get("epoch_iterator")
        if reader is not None and isinstance(frame.f_locals.get("self"), keras.Model):
            return getattr(getattr(reader, "_distributed_dataset", None), "element_spec", None)
    return None
