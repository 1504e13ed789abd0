"""The backend of a gang for which none is named: driver and executors decide, and a resumed run keeps it."""

import re
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from sparktrain.cluster import preflight
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.driver import backend_choice
from sparktrain.driver.backend_choice import check_imports, choose, needed_keras
from sparktrain.driver.first_lines import opening
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import ResumeError, SpecError
from sparktrain.search.space import single
from sparktrain.usercode.framework_imports import NO_IMPORTS, framework_imports, framework_imports_in
from sparktrain.usercode.target import resolve
from tests.support.run_stages import named
from tests.unit.scripted import of_a_script

BOTH = {"tensorflow", "horovod"}


@of_a_script
def train(lr: float) -> float:
    return lr


@pytest.fixture(autouse=True)
def horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver can train by either ring."""
    monkeypatch.setattr(preflight.check_installed, "__defaults__", (BOTH.__contains__,))


def having(monkeypatch: pytest.MonkeyPatch, packages: set[str]) -> None:
    """The driver has these."""
    monkeypatch.setattr(
        backend_choice.choose, "__kwdefaults__", {"strategy": False, "installed": packages.__contains__}
    )


def prepared(folder: Path, **options: Any) -> CheckedCall:
    values = {"workers": 2, "dir": str(folder), "name": "big", **options}
    return compose(train, single({"lr": 0.1}), RunOptions(**values))


@pytest.mark.parametrize(
    ("packages", "servers", "backend", "tentative"),
    [
        (BOTH, False, Backend.HOROVOD, True),
        (BOTH, True, Backend.TENSORFLOW, False),
        ({"tensorflow"}, False, Backend.TENSORFLOW, False),
        ({"horovod"}, False, Backend.TENSORFLOW, False),
        (set(), False, Backend.TENSORFLOW, False),
    ],
)
def test_the_driver_takes_horovod_where_it_can_be_had(
    packages: set[str], servers: bool, backend: Backend, tentative: bool
) -> None:
    gang = GangSpec(workers=2, ps=int(servers), backend=Backend.TENSORFLOW)
    choice = choose(gang, installed=packages.__contains__)
    assert (choice.backend, choice.tentative) == (backend, tentative)


@of_a_script
def with_a_strategy(lr: float, ctx: Any) -> None:
    ctx.strategy()


def test_a_function_that_makes_a_strategy_has_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, BOTH)
    made = compose(with_a_strategy, single({"lr": 0.1}), RunOptions(workers=2, dir=str(tmp_path), name="big"))
    assert made.definition.spec.gang.backend is Backend.TENSORFLOW
    assert [*opening(attach(made))] == [
        "big: backend tensorflow: the function makes a strategy, which only it connects"
    ]


@of_a_script
def with_torch(lr: float) -> None:
    import torch

    torch.manual_seed(0)


def test_a_function_that_imports_torch_alone_has_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, BOTH)
    options = RunOptions(workers=2, dir=str(tmp_path), name="big")
    made = compose(with_torch, single({"lr": 0.1}), options)
    assert made.definition.spec.gang.backend is Backend.TORCH
    assert [*opening(attach(made))] == ["big: backend torch: the function's modules import torch, and not TensorFlow"]


@of_a_script
def with_jax(lr: float) -> None:
    import jax

    jax.devices()


@pytest.mark.parametrize(
    ("function", "env", "backend"),
    [
        (with_jax, {}, Backend.JAX),
        (with_torch, {"KERAS_BACKEND": "jax"}, Backend.TORCH),
    ],
)
def test_a_function_that_trains_by_jax_alone_has_jax(
    function: Any, env: dict[str, str], backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    having(monkeypatch, BOTH)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    options = RunOptions(workers=2, dir=str(tmp_path), name="big", env=env)
    composed = compose(function, single({"lr": 0.1}), options)
    assert composed.definition.spec.gang.backend is backend


@pytest.mark.parametrize(
    ("text", "keras", "backend"),
    [
        ("import keras", "jax", Backend.JAX),
        ("import keras", "", Backend.HOROVOD),
        ("import keras, jax", "tensorflow", Backend.HOROVOD),
        ("import keras, tensorflow", "jax", Backend.JAX),
        ("import jax.numpy", "", Backend.JAX),
        ("import jax, torch", "", Backend.TORCH),
        ("import torch.nn", "", Backend.TORCH),
        ("import torch, keras", "", Backend.HOROVOD),
        ("import torch, horovod.torch as hvd", "", Backend.TORCH),
        ("import torch, horovod.tensorflow as hvd", "", Backend.HOROVOD),
        ("import numpy", "torch", Backend.TORCH),
    ],
)
def test_what_a_stored_function_imports_decides(text: str, keras: str, backend: Backend) -> None:
    gang = GangSpec(workers=2)
    choice = choose(gang, framework_imports_in(text), (keras, "keras.json"), installed=BOTH.__contains__)
    assert choice.backend is backend


@pytest.mark.parametrize(
    ("text", "keras", "otherwise"),
    [
        (
            "import tensorflow as tf\nfrom torch import nn",
            "",
            "the stored function:2 imports torch: pass backend='torch' to connect members that train by PyTorch",
        ),
        (
            "import torch, tensorflow\nimport jax",
            "",
            "the stored function:2 imports jax and the stored function:1 imports torch: pass backend='jax' or "
            "backend='torch' to connect members that train by JAX or PyTorch",
        ),
        (
            "import torch\nimport jax.numpy",
            "",
            "the stored function:2 imports jax: pass backend='jax' to connect members that train by JAX",
        ),
        (
            "import keras\nimport tensorflow",
            "torch",
            "the stored function:2 imports tensorflow: pass backend='horovod' to connect members that train by "
            "TensorFlow",
        ),
        ("import keras, jax", "jax", ""),
        ("import keras, numpy", "", ""),
    ],
)
def test_the_first_lines_name_the_other_frameworks_that_a_function_imports(
    text: str, keras: str, otherwise: str
) -> None:
    imports = framework_imports_in(text)
    choice = choose(GangSpec(workers=2), imports, (keras, "keras.json"), installed=BOTH.__contains__)
    assert choice.otherwise == otherwise
    assert choice.line.endswith(f"; {otherwise}" if otherwise else choice.why)
    if choice.tentative:
        assert choice.settled(False).otherwise == otherwise


@pytest.mark.parametrize(
    ("text", "backend", "refused"),
    [
        ("import tensorflow as tf", "torch", r"stored function:1 imports tensorflow, .* is PyTorch, .*'horovod' or"),
        ("import json\nimport torch", "horovod", r"stored function:2 imports torch, .* is TensorFlow, .*='torch', or"),
        ("import jax.numpy", "tensorflow", r"imports jax, .*pass backend='jax', or 'auto', which chooses by these"),
        ("import torch, jax", "tensorflow", r"1 imports jax and .* imports torch, .*pass backend='jax' or 'torch', or"),
        ("import torch\nimport horovod.torch", "horovod", r":1 imports torch, .*pass backend='torch'"),
        ("import torch", "jax", r"imports torch, and nothing that the function imports is JAX"),
        ("import tensorflow, torch", "torch", ""),
        ("import tensorflow, keras", "jax", ""),
        ("import numpy", "torch", ""),
        ("import torch", "none", ""),
        ("import importlib, torch\nimportlib.import_module(name)", "tensorflow", ""),
    ],
)
def test_a_backend_of_another_framework_is_refused_with_the_import(text: str, backend: str, refused: str) -> None:
    gang = GangSpec(workers=2, backend=Backend(backend))
    imports = framework_imports_in(text)
    check_imports(GangSpec(backend=Backend(backend)), imports)
    with pytest.raises(SpecError, match=refused) if refused else nullcontext():
        check_imports(gang, imports)


def test_what_other_functions_of_a_module_import_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two_functions.py"
    file.write_text("def train(ctx):\n    return ctx.size\n\n\ndef other():\n    import tensorflow, keras\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    imports = framework_imports(resolve(f"{file}:train"))
    assert imports.frameworks == {"tensorflow"}
    gang = GangSpec(workers=2, backend=Backend.TORCH)
    check_imports(gang, imports)
    assert needed_keras(gang, imports, "") == ""


def test_a_library_that_requires_a_framework_may_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = framework_imports_in("import tensorflow, lightning")
    gang = GangSpec(workers=2, backend=Backend.TORCH)
    with pytest.raises(SpecError, match="imports tensorflow"):
        check_imports(gang, imports)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"lightning": ["lightning"]})
    monkeypatch.setattr(metadata, "requires", lambda package: ["numpy", "Torch<3,>=2.1"])
    check_imports(gang, imports)


def test_a_call_with_another_backend_is_refused_with_the_line(tmp_path: Path) -> None:
    options = RunOptions(workers=2, backend="tensorflow", dir=str(tmp_path))
    with pytest.raises(SpecError, match=rf"'tensorflow': test_backend_choice\.py:{_line_of(with_torch)} imports"):
        compose(with_torch, single({"lr": 0.1}), options)


def _line_of(function: Any) -> int:
    """That of the first import within a function."""
    first: int = function.__code__.co_firstlineno
    return first + 2  # below its decorator and its own line


@pytest.mark.parametrize(
    ("there", "backend", "line"),
    [
        (True, Backend.HOROVOD, "big: backend horovod: driver and executors have Horovod"),
        (False, Backend.TENSORFLOW, "big: backend tensorflow: executors have no Horovod, .*"),
    ],
)
def test_executors_decide_and_the_plan_has_what_came_of_it(
    there: bool, backend: Backend, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    having(monkeypatch, BOTH)
    tentative = prepared(tmp_path)
    assert tentative.choice is not None
    made = tentative.with_backend(tentative.choice.settled(there))
    assert (made.definition.spec.gang.backend, made.definition.plan.spec["gang"]["backend"]) == (backend, backend)
    assert made.choice is not None
    assert not made.choice.tentative
    (printed,) = opening(attach(made))
    assert re.fullmatch(line, printed)


def test_a_driver_without_horovod_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, {"tensorflow"})
    made = prepared(tmp_path)
    assert made.definition.spec.gang.backend is Backend.TENSORFLOW
    assert list(opening(attach(made))) == [
        "big: backend tensorflow: the driver has no Horovod, which is faster for large models"
    ]


def test_parameter_servers_need_no_backend_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, BOTH)
    assert prepared(tmp_path, ps=1).definition.spec.gang.backend is Backend.TENSORFLOW


@pytest.mark.parametrize("named", ["horovod", "tensorflow", "none"])
def test_a_backend_that_is_named_is_taken(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, BOTH)
    made = prepared(tmp_path, backend=named)
    assert (made.choice, made.definition.spec.gang.backend.value) == (None, named)
    assert list(opening(attach(made))) == []


def test_trials_of_one_member_need_none() -> None:
    options = SweepOptions()
    assert options.choice(options.gang(), lambda: NO_IMPORTS, lambda: ("", "")) is None


@pytest.mark.parametrize("before", ["horovod", "tensorflow", "none"])
def test_a_run_that_is_resumed_keeps_its_backend(before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, BOTH)
    named(prepared(tmp_path, backend=before))
    having(monkeypatch, {"tensorflow"} if before == "horovod" else BOTH)
    again = attach(prepared(tmp_path))
    assert again.definition.spec.gang.backend.value == again.definition.plan.spec["gang"]["backend"] == before
    assert list(opening(again)) == [
        "big: resumes; 1 to run in all",
        f"big: backend {before}: the run started with it",
    ]


def test_other_roles_are_told_as_such_and_not_as_another_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    having(monkeypatch, BOTH)
    named(prepared(tmp_path, backend="horovod"))
    with pytest.raises(ResumeError, match='"ps": 1'):
        attach(prepared(tmp_path, ps=1))
