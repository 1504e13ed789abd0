"""Every name that a user meets in a signature, a result, a docstring or an error can be imported from `sparktrain`."""

import ast
import builtins
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pandas
import pytest

import sparktrain
from sparktrain import errors
from tests.support.sources import PACKAGE, nodes_of, trees_in

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = set(sparktrain.__all__)
WITH_TENSORFLOW = {"Warmup"}
"""Names that load TensorFlow, in four seconds: tests/training/test_schedule.py has the same tests for them."""
each_name = pytest.mark.parametrize("name", sorted(PUBLIC - WITH_TENSORFLOW))
ANYTHING = {
    "pd": pandas,
    "np": numpy,
    **dict.fromkeys(("Session", "DataFrame", "SparkSession", "Study", "FrozenTrial", "Figure"), object),
    "TrainContext": sparktrain.TrainContext,
    "StreamData": sparktrain.StreamData,
    "CheckpointSaver": sparktrain.CheckpointSaver,
    "MemoryCheckpoints": sparktrain.MemoryCheckpoints,
    "TrainingData": sparktrain.TrainingData,
}
"""Names in annotations that are imported only for type checkers."""


CONSTRUCTED = {("__init__", "Warmup")}
"""The classes that users construct."""


def members(owner: type) -> Iterator[Any]:
    """The public interface of a class of this package: methods, getters, and the class for its fields."""
    for name, value in vars(owner).items():
        if name.startswith("_") and name != "__enter__" and (name, owner.__name__) not in CONSTRUCTED:
            continue
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(value):
            yield inspect.unwrap(value)
    if dataclasses.is_dataclass(owner) or issubclass(owner, msgspec.Struct):
        yield owner


def annotations(thing: Any) -> dict[str, Any]:
    within = vars(sys.modules[thing.__module__])
    return typing.get_type_hints(thing, {**ANYTHING, **within})


def classes(annotation: Any) -> Iterator[type]:
    """All classes of this package that an annotation is made of."""
    if typing.get_origin(annotation) is typing.Unpack:
        for option in annotations(typing.get_args(annotation)[0]).values():
            yield from classes(option)
    elif typing.get_args(annotation):
        for each in typing.get_args(annotation):
            yield from classes(each)
    elif isinstance(annotation, list):
        for each in annotation:
            yield from classes(each)
    elif isinstance(annotation, type) and annotation.__module__.startswith("sparktrain"):
        yield annotation


def met(name: str) -> set[str]:
    """The classes that a user of this public name meets."""
    thing = getattr(sparktrain, name)
    if inspect.ismodule(thing):
        found: Any = [inspect.unwrap(getattr(thing, each)) for each in thing.__all__ if each[0].islower()]
    else:
        found = members(thing) if isinstance(thing, type) else [inspect.unwrap(thing)]
    return {
        each.__name__
        for part in found
        for field, annotation in annotations(part).items()
        if not field.startswith("_")
        for each in classes(annotation)
    }


@each_name
def test_classes_in_signatures_are_public(name: str) -> None:
    of_modules = {*sparktrain.testing.__all__, *sparktrain.data.__all__, *sparktrain.sklearn.__all__}
    assert sorted(met(name) - PUBLIC - of_modules) == []


def test_the_walk_finds_known_classes() -> None:
    assert {"SweepResult"} <= met("sweep")
    assert {"TrialResult", "SweepStatus"} <= met("SweepResult")
    assert {"Failure", "MemberResult", "Restart", "TrialStatus"} <= met("TrialResult")
    assert {"FailureKind", "Loss"} <= met("Failure")
    assert {"CheckpointSaver"} <= met("TrainContext")
    assert {"FileSource"} <= met("data")


@each_name
def test_errors_that_a_docstring_names_are_public(name: str) -> None:
    thing = getattr(sparktrain, name)
    parts = [thing, *(members(thing) if isinstance(thing, type) else [])]
    named = {error for part in parts for error in re.findall(r"\b[A-Z]\w+Error\b", inspect.getdoc(part) or "")}
    assert sorted(error for error in named if error not in PUBLIC and not hasattr(builtins, error)) == []


def test_every_error_is_public() -> None:
    found = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert sorted(found - PUBLIC) == []
    assert {type(getattr(sparktrain, name)) for name in found} == {type}


@each_name
def test_each_public_name_is_documented(name: str) -> None:
    thing = getattr(sparktrain, name)
    doc = inspect.getdoc(thing) or ""
    assert len(doc.split()) > 3, f"{name} has no docstring of its own"
    assert not doc.startswith(f"{name}("), f"the docstring of {name} is its signature"
    page = (DOCS / "names.md").read_text()
    assert f"`{name}`" in page, f"docs/names.md lacks {name}"
    for part in members(thing) if isinstance(thing, type) and not issubclass(thing, Enum) else ():
        assert isinstance(part, types.FunctionType | type)
        assert part.__doc__ or part.__name__.startswith("__"), f"{name}.{part.__name__} has no docstring"


INTERNAL = {
    "ApiError",
    "AttemptError",
    "ClientError",
    "CorruptCacheError",
    "CorruptFileError",
    "CorruptPartError",
    "CorruptGroupError",
    "CustomKerasError",
    "FilesGoneError",
    "LinkClosedError",
    "ListenError",
    "NotANumberError",
    "OverdueError",
    "RingRefusalError",
    "UnreadableNoticeError",
    "HadoopCallError",
    "KerasBackendError",
    "RefusedUseError",
    "MissedCallError",
    "UnfitError",
    "UnreachableMemberError",
    "Unreachable",
    "UploadRefusedError",
    "ZygoteLostError",
}
"""Errors that this package catches, or that users catch by a public base class."""


@cache
def nodes() -> list[ast.AST]:
    """The syntax of the package except for modules only for tests."""
    trees = [tree for path, tree in trees_in(PACKAGE).items() if "testing" not in path.parts]
    return [node for tree in trees for node in nodes_of(tree) if isinstance(node, ast.ClassDef | ast.Raise)]


def test_errors_that_other_modules_define_stay_within_the_package() -> None:
    defined = {
        node.name: {ast.unparse(base) for base in node.bases} for node in nodes() if isinstance(node, ast.ClassDef)
    }
    of_users = {name for name, value in vars(errors).items() if isinstance(value, type)}
    known = set(of_users)
    for _ in range(3):  # such as Unreachable, below DriverUnreachableError
        known |= {name for name, bases in defined.items() if known & bases}
    assert known - of_users <= INTERNAL
    assert "ZygoteLostError" in known


def test_every_error_that_is_raised_is_public_or_internal() -> None:
    calls = [
        node.exc.func.id
        for node in nodes()
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
    ]
    raised = {name for name in calls if name.endswith("Error") and not name.startswith("_")}
    assert "SpecError" in raised
    assert raised - PUBLIC - INTERNAL - set(vars(builtins)) == set()


def test_the_reference_describes_every_public_name() -> None:
    shown = set(re.findall(r"^::: sparktrain\.(\w+)", (DOCS / "reference" / "python-api.md").read_text(), re.MULTILINE))
    assert "errors" in shown
    assert set(PUBLIC) - shown - set(vars(errors)) == set()
