"""Hooks change what imports of single modules give, and leave all others to Python."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sparktrain.base.patched_imports import ImportHook, patch_when_imported, patching

NAME = "module_that_hooks_change"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{NAME}.py").write_text("steps = ['executed']\n")
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def append(step: str, module: ModuleType) -> None:
    module.steps.append(step)


def test_each_of_several_hooks_patches_the_module_right_after_its_import() -> None:
    for step in ("first", "second"):
        patch_when_imported(NAME, lambda module, step=step: append(step, module))
    module = importlib.import_module(NAME)
    assert module.steps == ["executed", "first", "second"]
    assert module.__spec__ is not None
    assert module.__spec__.origin == module.__file__


def test_an_imported_module_is_patched_at_once() -> None:
    module = importlib.import_module(NAME)
    hooks = sys.meta_path[:]
    patch_when_imported(NAME, lambda module: append("patched", module))
    assert module.steps == ["executed", "patched"]
    assert sys.meta_path == hooks


def test_a_module_is_filled_within_the_context_alone() -> None:
    hook = ImportHook(filled={NAME: lambda module: setattr(module, "steps", ["filled"])})
    with hook.installed():
        hook.install()
        assert importlib.import_module(NAME).steps == ["filled"]
    del sys.modules[NAME]
    assert importlib.import_module(NAME).steps == ["executed"]


def test_a_context_whose_hook_is_gone_ends_without_an_error() -> None:
    with ImportHook(filled={}).installed():
        sys.meta_path.pop(0)


def test_a_finder_without_find_spec_is_skipped_as_python_does() -> None:
    patch_when_imported(NAME, lambda module: append("patched", module))
    sys.meta_path.insert(1, object())  # type: ignore[arg-type]
    assert importlib.import_module(NAME).steps == ["executed", "patched"]


def test_a_hook_that_another_thread_removes_during_an_import_still_patches() -> None:
    hook = ImportHook(around={NAME: patching(lambda module: append("patched", module))})
    spec = hook.find_spec(NAME, None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    assert module.steps == ["executed", "patched"]


def test_a_package_that_is_absent_stays_absent() -> None:
    ImportHook(around={"no_such_module": patching(lambda module: None)}).install()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("no_such_module")
