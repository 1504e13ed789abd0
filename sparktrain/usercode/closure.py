"""Finds the values that a function captures, with the names its author knows and the lines that use them."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, MethodType

from sparktrain.config.param_values import shown, type_name
from sparktrain.usercode.imports import CACHED, is_users, plain_function_of, uses_of_globals
from sparktrain.usercode.keras_objects import of_keras

MAX_DEPTH = 5
MAX_ITEMS = 200

_HINTS = (
    ("pyspark.", "Spark exists in the driver alone: write its data to files that the function reads, or pass values"),
    ("py4j.", "Spark exists in the driver alone: write its data to files that the function reads, or pass values"),
    ("_io.", "open the file within the function, or pass its path"),
    ("_thread.", "make locks within the function: each trial runs in a process of its own"),
    ("threading.", "make it within the function: each trial runs in a process of its own"),
    ("multiprocessing.", "make it within the function: each trial runs in a process of its own"),
    ("asyncio.", "make it within the function: each trial runs in a process of its own"),
    ("generator", "pass a list, or make the generator within the function"),
    ("coroutine", "await it first, and pass its result"),
    ("tensorflow.", "build TensorFlow objects within the function"),
    ("keras.", "build Keras objects within the function"),
    ("socket.", "connect within the function"),
    ("sqlite3.", "connect within the function"),
    ("subprocess.", "start the process within the function"),
    ("module", "import the module within the function"),
)
_DRIVER_TYPES = frozenset(
    {"Accumulator", "Broadcast", "Column", "DataFrame", "RDD", "SparkContext", "SparkSession", "StreamingContext"}
)
_OTHER_HINT = "make it within the function, or pass plain values as parameters"


@dataclass(frozen=True)
class Capture:
    """One value that a function captures."""

    kind: str
    """The kind of name: "global", "closure variable"."""
    name: str
    """As an expression: `state['inner'].lock`."""
    value: object
    where: str = ""

    def __str__(self) -> str:
        """`global 'sc' (pyspark.core.context.SparkContext) used by train at line 12`, for messages."""
        return f"{self.kind} {self.name!r} ({type_name(self.value)}){self.where}"


def describe(function: object) -> str:
    """`train() (train.py:12)`, as a message's subject."""
    plain_function = plain_function_of(function)
    if plain_function is None:
        return shown(function)
    code = plain_function.__code__
    file = code.co_filename.rpartition("/")[2]
    name = "lambda" if code.co_name == "<lambda>" else f"{plain_function.__qualname__.rpartition('<locals>.')[2]}()"
    return f"{name} (line {code.co_firstlineno})" if file.startswith("<") else f"{name} ({file}:{code.co_firstlineno})"


def hint_for(value: object) -> str:
    """What to do instead of capturing `value`."""
    names = [f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.") for kind in type(value).__mro__[:-1]]
    return next((hint for name in names for start, hint in _HINTS if name.startswith(start)), _OTHER_HINT)


def belongs_to_driver(value: object) -> bool:
    """Whether `value` belongs to Spark, and is useless elsewhere even if it can be pickled."""
    return any(
        kind.__module__.startswith("py4j.")
        or (kind.__module__.startswith("pyspark.") and kind.__name__ in _DRIVER_TYPES)
        for kind in type(value).__mro__
    )


def captures_of(function: object) -> Iterator[Capture]:
    """The captures of `function`: globals, closure variables, defaults, and the object that it is bound to."""
    if isinstance(function, functools.partial):
        yield from captures_of(function.func)
        yield from (Capture("the partial's", f"args[{index}]", value) for index, value in enumerate(function.args))
        yield from (Capture("the partial's", name, value) for name, value in function.keywords.items())
    elif isinstance(function, MethodType):
        yield Capture("the method's", "self", function.__self__)
        yield from captures_of(function.__func__)
    elif isinstance(function, CACHED):
        yield from captures_of(function.__wrapped__)
    elif isinstance(function, FunctionType):
        yield from _of_plain(function)
    else:
        yield Capture("the called object", "self", function)


def culprit(function: object, fails: Callable[[object], bool]) -> Capture | None:
    """The innermost failing value within the first capture for which `fails` is true; None when there is none."""
    for capture in captures_of(function):
        if capture.value is not function and fails(capture.value):
            return _innermost(capture, fails, {id(function)})
    called_object = Capture("the called object", "self", function)
    return None if callable_in_python(function) else _innermost(called_object, fails, set())


def callable_in_python(function: object) -> bool:
    """Whether `captures_of` can inspect the value."""
    return isinstance(function, functools.partial | MethodType | FunctionType | CACHED)


def _of_plain(function: FunctionType) -> Iterator[Capture]:
    code = function.__code__
    of = f" of {function.__name__}"
    used_names = set()
    for use in uses_of_globals(code):
        if use.name in function.__globals__ and use.name not in used_names:
            used_names.add(use.name)
            value = function.__globals__[use.name]
            yield Capture("global", use.name, value, f" used by {use.inside} at line {use.line}")
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Capture("closure variable", variable, cell.cell_contents, of)
        except ValueError:  # not assigned yet
            continue
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    default_values = dict(zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)) | (
        function.__kwdefaults__ or {}
    )
    yield from (Capture("default value of parameter", name, value, of) for name, value in default_values.items())
    yield from (Capture("attribute", f"{function.__name__}.{name}", value) for name, value in vars(function).items())


def _innermost(capture: Capture, fails: Callable[[object], bool], above: set[int]) -> Capture:
    for _ in range(MAX_DEPTH):
        # Objects may hold each other: a value that is above is no part of itself.
        above = above | {id(capture.value)}
        inner = next((part for part in _parts(capture) if id(part.value) not in above and fails(part.value)), None)
        if inner is None:
            break
        capture = inner
    return capture


def _parts(capture: Capture) -> Iterator[Capture]:
    """The parts of `capture`."""
    value = capture.value
    if belongs_to_driver(value) or of_keras(type(value)):
        return
    if callable_in_python(value):
        yield from captures_of(value)
        return
    parts: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        parts = [(f"[{shown(key, 40)}]", item) for key, item in itertools.islice(value.items(), MAX_ITEMS)]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [(f"[{index}]", item) for index, item in enumerate(itertools.islice(value, MAX_ITEMS))]
    elif isinstance(value, type):
        parts = [(f".{name}", item) for name, item in vars(value).items() if not name.startswith("__")]
    elif is_users(type(value)) and isinstance(getattr(value, "__dict__", None), dict):
        parts = [(f".{name}", item) for name, item in itertools.islice(vars(value).items(), MAX_ITEMS)]
    yield from (replace(capture, name=f"{capture.name}{path}", value=item) for path, item in parts)
