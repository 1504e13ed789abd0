"""Which backend of Keras a process predicts with, and its error without one."""

import os
from collections.abc import Callable

import pytest

from sparktrain.errors import EnvironmentMismatchError
from sparktrain.ml.inference.backend_setup import set_up, set_up_tensorflow


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("KERAS_BACKEND", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PJRT_NPROC"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))


def having(*packages: str) -> Callable[[str], bool]:
    return lambda name: name in packages


@pytest.mark.parametrize(("packages", "backend"), [(("jax", "torch"), "jax"), (("torch",), "torch")])
def test_a_host_without_tensorflow_predicts_by_what_it_has(packages: tuple[str, ...], backend: str) -> None:
    assert set_up(3, None, having(*packages)) == ""
    assert os.environ["KERAS_BACKEND"] == backend
    assert (os.environ["OMP_NUM_THREADS"], os.environ["CUDA_VISIBLE_DEVICES"]) == ("3", "")


def test_a_backend_that_is_not_installed_is_named_with_what_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentMismatchError, match=r"needs TensorFlow, JAX or PyTorch.*sparktrain\[jax\]"):
        set_up(1, None, having())
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(EnvironmentMismatchError, match="the variable KERAS_BACKEND has Keras run on torch, which is"):
        set_up(1, None, having("tensorflow", "jax"))


def test_a_saved_model_without_tensorflow_is_refused_by_name() -> None:
    with pytest.raises(EnvironmentMismatchError, match=r"SavedModel needs TensorFlow.* export the model as a \.keras"):
        set_up_tensorflow(1, None, having("jax"))
