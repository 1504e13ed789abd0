"""A gang that asks Keras for another backend than TensorFlow is refused before anything starts, in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktrain.config.backends import Backend
from sparktrain.config.environment import keras_backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.driver.backend_choice import (
    check_inherited_keras,
    check_needed_keras,
    check_reported_keras,
    chosen_keras,
    expected_keras,
)
from sparktrain.driver.continuation.program import FunctionProgram
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.errors import SpecError

GANG = GangSpec(workers=2, backend=Backend.TENSORFLOW)
REFUSED = r"asks Keras for the backend '(jax|torch)', and the members of a gang train by TensorFlow: let Keras .*one"


def on_jax(ctx: Any) -> float:
    import os

    os.environ["KERAS_BACKEND"] = "jax"
    return float(ctx.rank)


def on_any(ctx: Any) -> float:
    return float(ctx.rank)


def of_keras() -> Callable[..., Any]:
    """A function of a notebook that imports Keras."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def train(ctx):\n    import keras\n    return float(keras.ops.sum([ctx.rank]))\n", space)
    return space["train"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", [Backend.HOROVOD, Backend.TENSORFLOW, Backend.PARAMETER_SERVER])
def test_a_function_or_a_variable_that_asks_for_another_is_refused(backend: Backend) -> None:
    gang = GangSpec(workers=2, ps=int(backend is Backend.PARAMETER_SERVER), backend=backend)
    with pytest.raises(SpecError, match=rf"^test_keras_check\.py:\d+ {REFUSED}"):
        chosen_keras(FunctionProgram(on_jax).keras_choice, gang, {})
    with pytest.raises(SpecError, match=rf"^KERAS_BACKEND in env= or forward_env= {REFUSED}"):
        chosen_keras(FunctionProgram(on_any).keras_choice, gang, {"KERAS_BACKEND": "torch"})


def test_a_gang_of_pytorch_trains_keras_on_it_and_on_no_other() -> None:
    gang = GangSpec(workers=2, backend=Backend.TORCH)
    assert chosen_keras(FunctionProgram(on_any).keras_choice, gang, {"KERAS_BACKEND": "torch"}) == "torch"
    with pytest.raises(SpecError, match=r"'jax', and the members of a gang train by PyTorch: let Keras use 'torch'"):
        chosen_keras(FunctionProgram(on_jax).keras_choice, gang, {})
    with pytest.raises(SpecError, match=r"TensorFlow: let Keras use 'tensorflow' there, pass backend='torch', or"):
        chosen_keras(FunctionProgram(on_any).keras_choice, GANG, {"KERAS_BACKEND": "torch"})


def test_a_call_takes_the_backend_that_keras_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    chosen = compose(on_any, [{}], RunOptions(workers=2, dir=str(tmp_path), env={"KERAS_BACKEND": "torch"}))
    assert chosen.choice is not None
    assert chosen.choice.line == "backend torch: KERAS_BACKEND in env= or forward_env= has Keras run on PyTorch"
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    for env, backend in (({}, Backend.TORCH), ({"KERAS_BACKEND": "tensorflow"}, Backend.HOROVOD)):
        chosen = compose(on_any, [{}], RunOptions(workers=2, dir=str(tmp_path), env=env))
        assert chosen.definition.spec.gang.backend in (backend, Backend.TENSORFLOW)
        assert (chosen.definition.spec.gang.backend is Backend.TORCH) == (backend is Backend.TORCH)


def test_executors_that_would_run_keras_on_another_backend_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    program = FunctionProgram(of_keras())
    expected = expected_keras(program.keras_choice, {}, program.uses_keras)
    assert expected == ("jax", "the variable KERAS_BACKEND")
    check_reported_keras(expected, "jax")
    with pytest.raises(SpecError, match=r"run on jax here, and the executors would run it on tensorflow: pass env="):
        check_reported_keras(expected, "")
    none = ("", "")
    assert expected_keras(program.keras_choice, {"KERAS_BACKEND": "torch"}, program.uses_keras) == none
    assert expected_keras(program.keras_choice, {}, FunctionProgram(on_any).uses_keras) == none
    assert compose(of_keras(), [{}], RunOptions(workers=1, dir=str(tmp_path))).keras.expected == expected
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert expected_keras(program.keras_choice, {}, program.uses_keras) == none


def test_one_worker_and_members_that_connect_themselves_may_use_any() -> None:
    for gang in (GangSpec(), GangSpec(workers=2, backend=Backend.NONE)):
        assert chosen_keras(FunctionProgram(on_jax).keras_choice, gang, {"KERAS_BACKEND": "torch"}) == ""
        check_inherited_keras(gang, "")


def test_what_the_shell_or_the_file_of_keras_asks_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    check_inherited_keras(GANG, "")
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    with pytest.raises(SpecError, match=rf"keras\.json {REFUSED}"):
        check_inherited_keras(GANG, "")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(SpecError, match=rf"^the variable KERAS_BACKEND {REFUSED}"):
        check_inherited_keras(GANG, "")
    check_inherited_keras(GANG, "tensorflow")
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    check_inherited_keras(GANG, "")


def test_a_gang_of_another_framework_needs_keras_to_run_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    options = {"workers": 2, "backend": Backend.TORCH, "dir": str(tmp_path)}
    call = compose(of_keras(), [{}], RunOptions(**options))
    gang = call.definition.spec.gang
    assert call.keras.needed == "<string>:2 imports keras"
    check_needed_keras(gang, call.keras.needed, "torch")
    with pytest.raises(SpecError, match=r"backend='torch': <.*:2 imports keras, and Keras would run on tensorflow: pa"):
        check_needed_keras(gang, call.keras.needed, "")
    with pytest.raises(SpecError, match=r"would run on tensorflow: pass env=\{'KERAS_BACKEND': 'torch'\} \(--env"):
        check_inherited_keras(gang, "", call.keras.needed)
    assert compose(of_keras(), [{}], RunOptions(env={"KERAS_BACKEND": "torch"}, **options)).keras.needed == ""
    assert compose(on_any, [{}], RunOptions(**options)).keras.needed == ""


@pytest.mark.parametrize("content", ["", "[]", "{", '{"backend": 3}', "\xff"])
def test_a_file_that_keras_cannot_read_asks_for_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "keras.json").write_text(content, "latin-1")
    assert keras_backend({"KERAS_HOME": str(tmp_path)}) is None
    assert keras_backend({"HOME": str(tmp_path / "absent")}) is None


@pytest.mark.parametrize(
    "options",
    [
        lambda **given: RunOptions(workers=2, backend=Backend.TENSORFLOW, **given),
        lambda **given: SweepOptions(metric="loss", workers_per_trial=2, backend=Backend.TENSORFLOW, **given),
    ],
)
def test_a_call_is_refused_before_it_has_a_session(options: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=REFUSED):
        compose(on_jax, [{}], options(dir=str(tmp_path)))
    with pytest.raises(SpecError, match=REFUSED):
        compose(on_any, [{}], options(dir=str(tmp_path), env={"KERAS_BACKEND": "jax"}))
    chosen = compose(on_any, [{}], options(dir=str(tmp_path), env={"KERAS_BACKEND": "tensorflow"}))
    assert chosen.keras.chosen == "tensorflow"
