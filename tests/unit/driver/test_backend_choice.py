"""The backend of a gang for which none is named: driver and executors decide, and a resumed run keeps it."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparktrain.cluster import preflight
from sparktrain.config.gang_spec import Backend
from sparktrain.driver import backend_choice
from sparktrain.driver.backend_choice import choose
from sparktrain.driver.continuation.program import StoredProgram
from sparktrain.driver.first_lines import opening
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import ResumeError
from sparktrain.protocol.messages import Code
from sparktrain.runs.plan import Plan
from sparktrain.search.space import single
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
    monkeypatch.setattr(backend_choice.choose, "__defaults__", (packages.__contains__,))


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
    choice = choose(servers, False, packages.__contains__)
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
    ("text", "keras", "expected"),
    [
        ("import keras", "jax", True),
        ("import keras", "", False),
        ("import keras, jax", "tensorflow", False),
        ("import keras, tensorflow", "jax", False),
        ("import jax.numpy", "", True),
        ("import jax, torch", "", False),
    ],
)
def test_keras_is_of_jax_where_it_runs_on_that(text: str, keras: str, expected: bool) -> None:
    plan = Plan(
        kind="run",
        function="train",
        code="",
        parts={},
        data_version=None,
        preload=("numpy",),
        space={},
        spec={"name": "big"},
        text=text,
    )
    assert StoredProgram(plan, Code("", b"", False, b"")).uses_jax(keras) is expected


def test_a_stored_program_is_of_torch_by_its_source() -> None:
    plan = Plan(
        kind="run",
        function="train",
        code="",
        parts={},
        data_version=None,
        preload=("numpy",),
        space={},
        spec={"name": "big"},
        text="import torch.nn",
    )
    assert StoredProgram(plan, Code("", b"", False, b"")).uses_torch()
    assert not StoredProgram(msgspec.structs.replace(plan, preload=("keras",)), Code("", b"", False, b"")).uses_torch()


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
    assert options.choice(options.gang()) is None


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
