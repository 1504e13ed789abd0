"""What the code of a run consists of, so that a resume with other code is found out, and what has changed is named.

Pickles will not do: the same function, pickled by another process, or in another cell of a notebook, has other bytes.
"""

import functools
import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from types import CodeType, FunctionType, MethodType, ModuleType

from sparktrain.driver.captures import captures_of
from sparktrain.driver.signature import Target
from sparktrain.driver.sources import is_users
from sparktrain.protocol.messages import Code

DIGITS = 16
"""Of a SHA-256, in hexadecimal: enough to tell versions of one file apart."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(target: Target, code: Code) -> dict[str, str]:
    """A digest for each part of the code: its files by name, and each function that is sent by value.

    Python's own version is a part too, for the bytes of a function's instructions depend on it, but not line numbers
    and names of files. What a function captures counts as far as it is plain data, arrays, functions and classes of the
    user's; other objects count by their type.
    """
    parts = dict(_of_archive(code.archive))
    if code.by_reference:
        return {f"function {target.name}": _digest([code.function]), **parts}
    seen: set[int] = set()
    words = list(_of_value(target.function, seen))
    return {f"function {target.name}": _digest(words), **parts}


def _of_archive(archive: bytes) -> Iterator[tuple[str, str]]:
    if archive:
        with zipfile.ZipFile(BytesIO(archive)) as opened:
            for name in sorted(opened.namelist()):
                yield name, _digest([opened.read(name)])


def _digest(words: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for word in words:
        digest.update(len(word).to_bytes(8, "big") + word)
    return digest.hexdigest()[:DIGITS]


def _of_value(value: object, seen: set[int]) -> Iterator[bytes]:
    """Words that tell `value` from others; an object that contains itself is told once."""
    if isinstance(value, PLAIN):
        yield repr(value).encode()
    elif id(value) in seen:
        yield b"again"
    else:
        seen.add(id(value))
        yield from _of_object(value, seen)


def _of_object(value: object, seen: set[int]) -> Iterator[bytes]:
    yield f"{type(value).__module__}.{type(value).__qualname__}".encode()
    if isinstance(value, FunctionType):
        yield from _of_code(value.__code__)
        if is_users(value):
            yield from _of_captures(value, seen)
    elif isinstance(value, functools.partial | MethodType):
        yield from _of_captures(value, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _of_value(key, seen)
            yield from _of_value(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _of_value(item, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted(b"".join(_of_value(item, seen)) for item in value)
    elif isinstance(value, type):
        yield from _of_class(value, seen)
    elif (data := _buffer(value)) is not None:
        yield data


def _of_class(value: type, seen: set[int]) -> Iterator[bytes]:
    yield value.__qualname__.encode()
    if is_users(value):
        for name, item in vars(value).items():
            if not name.startswith("__") or isinstance(item, FunctionType):
                yield name.encode()
                yield from _of_value(item, seen)


def _of_captures(function: object, seen: set[int]) -> Iterator[bytes]:
    for capture in captures_of(function):
        yield capture.name.encode()
        yield from _of_value(capture.value, seen)
    inner = getattr(function, "func", None) or getattr(function, "__func__", None)
    if inner is not None:
        yield from _of_value(inner, seen)


def _of_code(code: CodeType) -> Iterator[bytes]:
    """What the instructions do, without where they stand."""
    yield code.co_code
    yield repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant).encode()


def _buffer(value: object) -> bytes | None:
    """The bytes of an array."""
    try:
        view = memoryview(value)  # type: ignore[arg-type] # whatever has a buffer
    except (TypeError, ValueError):
        return None
    return repr((view.format, view.shape)).encode() + view.tobytes()
