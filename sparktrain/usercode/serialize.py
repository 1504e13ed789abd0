"""Serializes the user's function for executors, with the user's modules that it needs."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cloudpickle

from sparktrain.base.formatting import first_line
from sparktrain.config.gang_spec import ALONE, GangSpec
from sparktrain.config.option_catalog import CODE_BYTES
from sparktrain.errors import FunctionError
from sparktrain.protocol.messages import Code
from sparktrain.usercode.closure import (
    Capture,
    belongs_to_driver,
    captures_of,
    culprit,
    describe,
    hint_for,
)
from sparktrain.usercode.dynamic_imports import is_on_path, named_packages
from sparktrain.usercode.imports import Sources, goes_by_value, imports_of_function, plain_function_of
from sparktrain.usercode.keras_objects import CustomKerasError
from sparktrain.usercode.keras_registry import registered
from sparktrain.usercode.module_graph import reached_files, reached_imports
from sparktrain.usercode.module_zip import MIB, archive_beside, archive_of
from sparktrain.usercode.pickler import ScriptPickler, Sink, TooLargeError
from sparktrain.usercode.preload import KerasInTrials, PreloadChoice, chosen
from sparktrain.usercode.source_imports import Imports
from sparktrain.usercode.target import Target
from sparktrain.usercode.traceback_sources import with_origins

A_COPY = (
    "a copy of the driver's environment, which would reach every trial and the run directory, with its secrets; read "
    "os.environ within the function, and name what trials need of the driver's by env= or forward_env="
)
"""The end of a message."""
LEAST_SECRET = 8
LEAST = 3
"""So many variables at least are a copy: fewer are values that the user chose."""
MOST_CODE_BYTES = 120 * 2**20
"""The highest `code_limit`: below the limit of a message, `state.message.MAX_MESSAGE_BYTES`."""
MEASURED_BYTES = 2**30
"""How far the size of a captured value is measured."""


def pack(
    function: Callable[..., Any] | Target,
    limit: int = CODE_BYTES,
    *,
    sources: Sources | None = None,
    values: Collection[str] = (),
    settings: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Code:
    """Pack the function and the local modules that it needs into one message.

    A target of the command line is imported by executors; every other function is pickled by cloudpickle, by value when
    it is defined in a script, a notebook or another function, and by reference when its module can be imported.
    `values` are texts among its parameters, which may name modules; a pickle brings `settings` of libraries too.
    Runs no user code except what pickling calls. Raises FunctionError when it cannot be pickled, or has more than
    `limit` bytes with its modules and captured values.
    """
    target = function if isinstance(function, Target) else Target.of(function)
    # One reading for a whole call: the files of the user were followed four times, 160 ms for 440 files.
    sources = sources or Sources()
    if target.reference is not None:
        data = bound_reference(target.reference, target.bound).encode()
        archive = _modules_archive(target, sources, values)
    else:
        data, named = _pickle(target.function, limit, settings)
        archive = _archive(_local_modules(target.function, data, named, sources), _dynamic(target, sources, values))
    if len(data) + len(archive) > limit:
        raise _too_large(target.function, f"{(len(data) + len(archive)) / MIB:.0f} MiB", limit)
    archive = with_origins(archive, data, target.root)
    return Code(hashlib.sha256(data + archive).hexdigest(), data, target.reference is not None, archive)


def bound_reference(reference: str, bound: Mapping[str, Any] | None) -> str:
    """What members import the function by, and in JSON the first argument that is bound to it, if there is one."""
    return reference if bound is None else f"{reference} {json.dumps(bound, sort_keys=True)}"


def pickled(function: Callable[..., Any], limit: int = CODE_BYTES) -> bytes:
    """The function alone, without the modules that it imports, for a file that `unpickled` reads.

    Raises FunctionError when it cannot be pickled, or has more than `limit` bytes.
    """
    return _pickle(function, limit, {})[0]


def unpickled(data: bytes) -> Any:
    """The function in `data`. Runs code from there: only for files that the user asks to load.

    Raises ImportError or AttributeError when a module that it refers to is missing or has changed.
    """
    return cloudpickle.loads(data)


def preload_choice(
    function: Callable[..., Any] | Target,
    gang: GangSpec = ALONE,
    env: Collection[str] = (),
    *,
    sources: Sources | None = None,
    keras: KerasInTrials | None = None,
) -> PreloadChoice:
    """The modules that a zygote should import before its children train in `gang`. Imports nothing.

    `env` has the names of variables that trials get: modules that read one on import are left to the trials.
    `keras` has the backend of Keras in all of them, where that is known.
    """
    target = function if isinstance(function, Target) else Target.of(function)
    return chosen(imports_of_target(target, sources or Sources()), gang, env, keras)


def imports_of_target(target: Target, sources: Sources) -> Imports:
    """The imports of the function, and of the user's modules that it reaches. Imports nothing."""
    imports, modules, files = _starts(target)
    # Only what the function's own modules reach, and no package that a text may name: one file that names
    # OMP_NUM_THREADS kept TensorFlow out of the zygote, and each trial paid for the import.
    return imports | reached_imports(sources, modules, files)


def sources_of_target(target: Target, sources: Sources) -> list[Path]:
    """The files of the same modules: those of the function first. Imports nothing."""
    _, modules, files = _starts(target)
    return [*files, *sorted(reached_files(sources, modules, files) - {*files})]


def _starts(target: Target) -> tuple[Imports, set[str], list[Path]]:
    """The imports of the function alone, and the modules and files of the user that they start from."""
    imports = imports_of_function(target.function)
    modules = set(imports.modules)
    files = [target.file] if target.file else []
    defined = sys.modules.get(getattr(plain_function_of(target.function), "__module__", ""))
    if defined is not None and defined.__name__ != "__main__" and defined.__file__:
        modules.add(defined.__name__)
        files.append(Path(defined.__file__))
    return imports, modules, files


def _modules_archive(target: Target, sources: Sources, values: Collection[str]) -> bytes:
    """The modules beside a target's file; of a package, itself and the local modules that it imports."""
    if target.root is None or target.file is None or target.reference is None:
        return b""
    named = _dynamic(target, sources, values)
    if target.file.parent == target.root:
        return archive_beside(target.root, sources, [*named, target.file])
    return _archive(_with_imported({target.code_module.partition(".")[0]}, sources), named)


def _archive(imported: list[Path], named: list[Path]) -> bytes:
    """The modules that code imports, and those that it names, unless they are too large: these may be no modules."""
    if set(named) <= set(imported):
        return archive_of(imported)
    with suppress(FunctionError):
        return archive_of(list(dict.fromkeys([*imported, *named])))
    return archive_of(imported)


def _dynamic(target: Target, sources: Sources, values: Collection[str]) -> list[Path]:
    """The places of local modules that the code names in texts, with those that they import."""
    imports = imports_of_function(target.function)
    modules = imports.modules | ({target.code_module} if target.reference is not None else set())
    names = named_packages(imports | sources.imports_of_modules(modules), sources, values)
    places = _with_imported(names, sources) if names else []
    return [place for place in places if is_on_path(place.stem)]


def _pickle(
    function: Callable[..., Any], limit: int, settings: Mapping[str, dict[str, Any]]
) -> tuple[bytes, set[str | None]]:
    """The bytes, and the modules that they need."""
    for capture in captures_of(function):
        if belongs_to_driver(capture.value):
            raise _cannot_be_sent(function, capture, "is Spark's")
        if (_known_size(capture.value) or 0) > limit:  # found without a copy
            raise _too_large(function, f"more than {limit / MIB:.3g} MiB", limit)
    sink = Sink(limit, keep=True)
    pickler = ScriptPickler(sink)
    try:
        pickler.dump_function(function, lambda pickler: registered(pickler, function), dict(settings))
    except TooLargeError:
        raise _too_large(function, f"more than {limit / MIB:.3g} MiB", limit) from None
    except Exception as error:
        cause = culprit(function, _cannot_be_pickled)
        if cause is None:
            raise FunctionError(
                f"{describe(function)} cannot be sent to executors: {first_line(error)}; define it at the top of a "
                "module, a script or a notebook cell, and pass values as parameters"
            ) from error
        why = str(error) if isinstance(error, CustomKerasError) else f"cannot be pickled: {first_line(error)}"
        raise _cannot_be_sent(function, cause, why) from error
    data = sink.getvalue()
    # cloudpickle copies os.environ by value, so that a run would store the driver's secrets.
    if holds_environment(data):
        raise _copies_environment(function, limit)
    return data, pickler.named


def _cannot_be_sent(function: object, capture: Capture, why: str) -> FunctionError:
    return FunctionError(
        f"{describe(function)} cannot be sent to executors: {capture} {why}; {hint_for(capture.value)}"
    )


def _copies_environment(function: object, limit: int) -> FunctionError:
    def copies(value: object) -> bool:
        sink = Sink(limit, keep=True)
        try:
            ScriptPickler(sink).dump_value(value)
        except Exception:  # of a part that is pickled in another way
            return False
        return holds_environment(sink.getvalue())

    cause = culprit(function, copies) or "what it takes along"
    return FunctionError(f"{describe(function)} cannot be sent to executors: {cause} has {A_COPY}")


def _cannot_be_pickled(value: object) -> bool:
    if belongs_to_driver(value):
        return True
    try:
        ScriptPickler(Sink(MEASURED_BYTES)).dump_value(value)
    except TooLargeError:
        return False
    except Exception:  # whatever the value's own __reduce__ raises
        return True
    return False


def _too_large(function: object, size: str, limit: int) -> FunctionError:
    sizes = sizes_of_captures(function)
    listed = ", ".join(f"{capture} has {_mib(size)}" for size, capture in sizes[:3] if size >= MIB)
    return FunctionError(
        f"{describe(function)} has {size} with all that it takes along, {limit / MIB:.3g} MiB can be sent to "
        f"executors{': ' if listed else ''}{listed}; load data within the function, from files that executors can read"
        f"{f', or raise code_limit (to {MOST_CODE_BYTES // MIB} MiB at most)' if limit < MOST_CODE_BYTES else ''}"
    )


def sizes_of_captures(function: object) -> list[tuple[int, Capture]]:
    """The captures of `function` with their pickled bytes, the largest first; 0 where unknown."""
    return sorted(((_size(capture.value), capture) for capture in captures_of(function)), key=lambda pair: -pair[0])


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size < MEASURED_BYTES else "1 GiB or more"


def _known_size(value: object) -> int | None:
    """The size that an array or table reports itself."""
    try:
        size = getattr(value, "nbytes", None)
    except Exception:  # a property of a user's class, or of a closed file
        return None
    return size if isinstance(size, int) else None


def _size(value: object) -> int:
    size = _known_size(value)
    if size is not None:
        return size
    sink = Sink(MEASURED_BYTES)
    try:
        ScriptPickler(sink).dump_value(value)
    except TooLargeError:
        return MEASURED_BYTES
    except Exception:  # a value that cannot be pickled is reported elsewhere
        return 0
    return sink.size


def _local_modules(
    function: Callable[..., Any], data: bytes, named: Collection[str | None], sources: Sources
) -> list[Path]:
    """Files and folders of the local modules that the pickle refers to or the function imports, and of theirs."""
    loaded = tuple(sys.modules)
    local = set(sources.local_names(loaded))
    # A pickle names the classes of values by their modules, which the function need not import itself.
    possible = (name for name in loaded if name.partition(".")[0] in local)
    referred = {name for name in possible if name in named or (not goes_by_value(name) and _names_in(data, name))}
    modules = imports_of_function(function).modules
    imported = modules | sources.imports_of_modules(modules).modules
    return sources.places_of(imported | referred | sources.imports_of_modules(referred).modules)


def _with_imported(names: set[str], sources: Sources) -> list[Path]:
    """Places of the local modules among `names`, and of those that they import."""
    return sources.places_of(names | sources.imports_of_modules(names).modules)


def _names_in(data: bytes, module: str) -> bool:
    """Whether a pickle within `data`, such as an object that pickles its parts itself, has an object of `module` by its
    name. A module's name alone may be any text: what has a key `train` needs no `train.py` that happens to be loaded.
    """
    text = module.encode()
    # Opcodes SHORT_BINUNICODE, twice, and STACK_GLOBAL, with those that memoize; searched as bytes because a pickle may
    # have millions of opcodes.
    start = b"\x8c" + bytes([min(len(text), 255)]) + text
    return start in data and re.search(re.escape(start) + rb"\x94?\x8c(?s:.)[^\0-\x1f]+?\x94?\x93", data) is not None


def holds_environment(data: bytes) -> bool:
    """Whether pickled `data` has most variables of this process, names and values, in any form."""
    variables = [(os.fsencode(name), os.fsencode(value)) for name, value in os.environ.items() if value]
    half = len(variables) // 2
    held = missing = 0
    for name, value in variables:
        if name in data and value in data and any(form in data for form in _forms(name)):
            held += 1
        else:
            missing += 1
        if missing > half:  # the rest cannot change it, and data may be large
            return False
    return held > half and held >= LEAST


def is_of_environment(text: str) -> bool:
    """Whether a text is the value of a variable of this process, and long enough for a secret."""
    return len(text) >= LEAST_SECRET and text in os.environ.values()


def _forms(name: bytes) -> tuple[bytes, ...]:
    """`name` as a text or bytes of its own in a pickle, and as part of a longer text."""
    size = bytes([min(len(name), 255)])
    return b"\x8c" + size + name, b"C" + size + name, name + b"=", b"'" + name + b"'", b'"' + name + b'"'
