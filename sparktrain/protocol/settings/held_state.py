"""What a program has set in an object or a module that a process has once, so that a trial can have it too."""

from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from msgspec import UNSET, Struct, UnsetType

PLAIN = (bool, int, float, complex, str, bytes, type(None), date, time, timedelta, Decimal, Fraction, PurePath, Enum)
MOST_VALUES = 10_000
"""An object with more is no object of settings."""
_NAMED = (type, FunctionType, BuiltinFunctionType, ModuleType)
"""What is part of the code of an object."""


class HeldState(Struct, frozen=True):
    """What one object has."""

    kind: str
    attributes: dict[str, Any]
    """Plain values, or states of objects."""
    items: Any = UNSET
    """Of a dict or list with attributes: its items likewise."""


class Assigned(Struct, frozen=True):
    """A value, or the state of an object, at its place below a module."""

    steps: tuple[tuple[bool, Any], ...]
    """The way from the module: whether it is an item, and the key or the name of the attribute."""
    value: Any

    def plain(self) -> object:
        """The value without the classes of this module."""
        return _plain(self.value)

    def texts(self) -> list[str]:
        """The texts in the value that may be secrets."""
        parts = self.value.attributes.values() if isinstance(self.value, HeldState) else (self.value,)
        return [part for part in parts if isinstance(part, str)]

    def give(self, module: ModuleType) -> None:
        """Give the place its value. Raises whatever the owner of the place raises."""
        owner: Any = module
        for is_item, name in self.steps[:-1]:
            owner = owner[name] if is_item else getattr(owner, name)
        is_item, name = self.steps[-1]
        held = None if is_item else getattr(owner, name, None)
        if isinstance(self.value, HeldState):
            give_state(owner[name] if is_item else held, self.value)
        elif is_item:
            owner[name] = self.value
        elif type(self.value) is dict and type(held) is dict:  # others may have imported it
            held.clear()
            held.update(self.value)
        elif type(self.value) is list and type(held) is list:
            held[:] = self.value
        else:
            setattr(owner, name, self.value)


class _NoSettingsError(Exception):
    """The object has something else than plain data."""


def state_of(value: object) -> HeldState | None:
    """The state of an object with nothing but plain data, at any depth; None for any other object."""
    try:
        return _state(value, [MOST_VALUES], ())
    except _NoSettingsError:
        return None


def _state(value: object, budget: list[int], above: tuple[int, ...]) -> HeldState:
    if isinstance(value, _NAMED) or type(value).__module__ == "builtins" or id(value) in above:
        raise _NoSettingsError
    path = (*above, id(value))
    attributes = {name: _part(part, budget, path) for name, part in _attributes(value) if not isinstance(part, _NAMED)}
    items: Any = UNSET
    if isinstance(value, dict):
        items = {key: _part(dict.__getitem__(value, key), budget, path) for key in dict.keys(value)}
    elif isinstance(value, list):
        items = [_part(item, budget, path) for item in list.__iter__(value)]
    elif not attributes or isinstance(value, tuple | set | frozenset):
        raise _NoSettingsError
    return HeldState(_kind(value), attributes, items)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    namespace = getattr(value, "__dict__", None)
    yield from dict(namespace).items() if isinstance(namespace, dict) else ()
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if type(slot).__name__ == "member_descriptor" and hasattr(value, name):
                yield name, slot.__get__(value)


def _part(value: object, budget: list[int], above: tuple[int, ...]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise _NoSettingsError
    if isinstance(value, PLAIN):
        return value
    if id(value) in above:
        raise _NoSettingsError
    path = (*above, id(value))
    if type(value) is dict:
        return {_key(key): _whole(part, budget, path) for key, part in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        container: Any = value
        return type(container)(_whole(part, budget, path) for part in container)
    return _state(value, budget, above)


def _key(key: object) -> object:
    if not isinstance(key, PLAIN):
        raise _NoSettingsError
    return key


def _whole(value: object, budget: list[int], above: tuple[int, ...]) -> object:
    """A value within a plain container, which is replaced as a whole."""
    part = _part(value, budget, above)
    if isinstance(part, HeldState):
        raise _NoSettingsError
    return part


def give_state(target: object, state: HeldState) -> None:
    """Set what differs in an object from `state`. Calls no code of its class. Raises TypeError for another class."""
    if _kind(target) != state.kind:
        raise TypeError(f"it is {_kind(target)} here, and {state.kind} in the driver")
    current = dict(_attributes(target))
    for name, value in state.attributes.items():
        if isinstance(value, HeldState) and name in current:
            give_state(current[name], value)
        elif not isinstance(value, HeldState) and (name not in current or not _equal(current[name], value)):
            object.__setattr__(target, name, value)
    if isinstance(target, dict) and not isinstance(state.items, UnsetType):
        _give_items(target, state.items)
    elif isinstance(target, list) and not any(isinstance(item, HeldState) for item in state.items or ()):
        list.__setitem__(target, slice(None), state.items)


def _give_items(target: dict[Any, Any], items: dict[Any, Any]) -> None:
    for key in [key for key in dict.keys(target) if key not in items]:
        dict.__delitem__(target, key)
    for key, value in items.items():
        if isinstance(value, HeldState):
            if key in target:
                give_state(dict.__getitem__(target, key), value)
        else:
            dict.__setitem__(target, key, value)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _plain(value: object) -> object:
    if isinstance(value, HeldState):
        return value.kind, _plain(value.attributes), _plain(value.items)
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, dict) else value


def _equal(left: object, right: object) -> bool:
    return type(left) is type(right) and bool(left == right)
