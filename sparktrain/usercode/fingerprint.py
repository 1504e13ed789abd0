"""Digests of the parts of a run's code, so that a resume detects other code and names what has changed.

Pickles will not do: the same function, pickled by another process, or in another cell of a notebook, has other bytes.
"""

import dis
import functools
import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType

from sparktrain.protocol.code_origins import NAME as ORIGINS
from sparktrain.protocol.messages import Code
from sparktrain.protocol.settings import script_settings
from sparktrain.usercode.closure import captures_of
from sparktrain.usercode.imports import Sources, is_users
from sparktrain.usercode.library_objects import LibraryObjects
from sparktrain.usercode.target import Target

DIGITS = 16
"""Hexadecimal digits of a SHA-256: enough to distinguish versions of one file."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), range, date, time, timedelta, Decimal, Fraction, PurePath)
"""Types with a complete `repr`."""
_POSITIONS = frozenset(("__firstlineno__", "__static_attributes__"))
"""What Python itself stores in the body of a class."""


def fingerprint(target: Target, code: Code, *, sources: Sources | None = None) -> dict[str, str]:
    """A digest for each part of the code: its files by name, and each function that is sent by value.

    Python's own version is a part too, for the bytes of a function's instructions depend on it, but not line numbers
    and names of files. What a function captures counts as far as it is plain data, arrays, and functions, classes and
    objects of the user's; what a library has made counts by its name or type.
    """
    used = _used(target, sources or Sources())
    parts = {name: digest for name, digest in _of_archive(code.archive) if used is None or _top(name) in used}
    function_digest = _hashed([code.function]) if code.by_reference else _Digests().of(target.function)
    return {f"function {target.name}": function_digest.hex()[:DIGITS], **parts}


def digests_of(settings: Mapping[str, script_settings.Values]) -> dict[str, str]:
    """The same for settings that a program has made: a part for each."""
    return {
        f"setting {name}": _hashed([_Digests().of(value)]).hex()[:DIGITS]
        for name, value in script_settings.counted(settings)
    }


def _used(target: Target, sources: Sources) -> set[str] | None:
    """The top-level modules that count: of a file that the command line names all that lies beside it travels along,
    and what the file imports is its code. None for all that travel."""
    if target.file is None or target.reference is None:
        return None
    imported = sources.imports_of_files([target.file]).modules
    return {module.partition(".")[0] for module in (target.code_module, *imported)}


def _top(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


@functools.lru_cache(maxsize=2)
def _of_archive(archive: bytes) -> tuple[tuple[str, str], ...]:
    """Cached, because a notebook makes many calls with the same modules."""
    if not archive:
        return ()
    with zipfile.ZipFile(BytesIO(archive)) as opened:
        names = sorted(set(opened.namelist()) - {ORIGINS})
        return tuple((name, _hashed([opened.read(name)]).hex()[:DIGITS]) for name in names)


def _hashed(words: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for word in words:
        digest.update(len(word).to_bytes(8, "big") + word)
    return digest.digest()


def digest_of_code(code: CodeType) -> bytes:
    """The same for code that differs only in line numbers, or names of files."""
    return _Digests().of(code)


class _Digests:
    """Computes digests of values and of their parts; visits each object once."""

    def __init__(self) -> None:
        self._memos: dict[int, tuple[object, bytes]] = {}
        """Keeps the objects too, because Python reuses the id of a deleted one."""
        self._library = LibraryObjects()

    def of(self, value: object) -> bytes:
        """Identify `value`, with the same result in every process."""
        if isinstance(value, PLAIN):
            return repr(value).encode()
        if (memo := self._memos.get(id(value))) is not None:
            return memo[1]
        self._memos[id(value)] = value, b"it contains itself"
        digest = _hashed(self._words(value))
        self._memos[id(value)] = value, digest
        return digest

    def _words(self, value: object) -> Iterator[bytes]:
        yield f"{type(value).__module__}.{type(value).__qualname__}".encode()
        if homes := self._library.homes_of_container(value):  # what it has is this process's own
            yield ".".join(homes[0]).encode()
            return
        match value:
            case FunctionType():
                yield from self._of_function(value)
            case CodeType():
                yield from self._of_code(value)
            case ModuleType():
                yield value.__name__.encode()
            case type():
                yield from self._of_class(value)
            case dict():
                yield from (self.of(part) for item in value.items() for part in item)
            case list() | tuple():
                yield from map(self.of, value)
            case set() | frozenset():
                yield from sorted(map(self.of, value))
            case staticmethod() | classmethod():
                yield self.of(value.__func__)
            case property():
                yield from map(self.of, (value.fget, value.fset, value.fdel))
            case functools.partial() | MethodType():
                yield self.of(value.func if isinstance(value, functools.partial) else value.__func__)
                yield from self._of_captures(value)
            case _:
                yield from self._of_object(value)

    def _of_function(self, function: FunctionType) -> Iterator[bytes]:
        # What a library has made counts by its name alone: otherwise an upgrade of a library was refused as other code.
        if is_users(function):
            yield self.of(function.__code__)
            yield from self._of_captures(function)
        else:
            yield f"{function.__module__}.{function.__qualname__}".encode()

    def _of_captures(self, function: object) -> Iterator[bytes]:
        for capture in captures_of(function):
            yield capture.name.encode()
            yield self.of(capture.value)

    def _of_code(self, code: CodeType) -> Iterator[bytes]:
        """The instructions of a code object, without line numbers."""
        yield repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
        if _POSITIONS.isdisjoint(code.co_names):
            yield code.co_code
            yield from map(self.of, code.co_consts)
        else:
            yield from self._of_class_body(code)

    def _of_class_body(self, code: CodeType) -> Iterator[bytes]:
        # From Python 3.13 on, a body stores its line among its constants, and names of attributes in any order: a
        # comment above a class would be other code. Instructions have a constant by its index, which the line shifts.
        instructions = list(dis.get_instructions(code))
        for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
            if following is None or following.argval not in _POSITIONS:
                is_constant = instruction.opcode in dis.hasconst
                yield f"{instruction.opname} {'' if is_constant else instruction.arg}".encode()
                yield self.of(instruction.argval) if is_constant else b""

    def _of_class(self, value: type) -> Iterator[bytes]:
        yield value.__qualname__.encode()
        if is_users(value):
            yield from map(self.of, value.__bases__)
            for name, item in vars(value).items():
                if not name.startswith("__") or isinstance(item, FunctionType):
                    yield name.encode()
                    yield self.of(item)
        else:
            yield value.__module__.encode()

    def _of_object(self, value: object) -> Iterator[bytes]:
        if (data := _buffer(value)) is not None:
            yield data
        # The bytes of an array of objects are addresses: its fingerprint differed in each process.
        elif callable(tolist := getattr(value, "tolist", None)) and not is_users(type(value)):
            yield self.of(tolist())  # of an array of objects or dates
        namespace = getattr(value, "__dict__", None)
        attributes = namespace if isinstance(namespace, dict) else {}
        if isinstance(attributes.get("__wrapped__"), FunctionType):  # a cache, or another wrapper of a library
            yield self.of(attributes["__wrapped__"])
        if is_users(type(value)):
            yield self.of(type(value))
            yield self.of({name: getattr(value, name, None) for name in _slots(type(value))} | attributes)


def _slots(kind: type) -> list[str]:
    slots = (vars(base).get("__slots__", ()) for base in kind.__mro__)
    names = [name for slot_names in slots for name in ([slot_names] if isinstance(slot_names, str) else slot_names)]
    return [name for name in names if not name.startswith("__")]


def _buffer(value: object) -> bytes | None:
    """The bytes of an array; None when they are addresses of objects."""
    try:
        view = memoryview(value)  # type: ignore[arg-type] # whatever has a buffer
    except (TypeError, ValueError):
        return None
    return None if "O" in view.format else repr((view.format, view.shape)).encode() + view.tobytes()
