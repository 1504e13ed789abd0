"""The contract of a framework, with the real ones that are installed here."""

import importlib
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import UserError
from sparktrain.state.outcome import FailureKind
from sparktrain.training.checkpoint import tensor_files, training_state
from sparktrain.training.frameworks.boosting_framework import LIGHTGBM, XGBOOST
from sparktrain.training.frameworks.contract import Framework
from sparktrain.training.frameworks.imported import ALL, imported, keeper
from sparktrain.training.frameworks.jax.jax_framework import Jax
from sparktrain.training.frameworks.keras.keras_framework import Keras
from sparktrain.training.frameworks.tensorflow.tensorflow_framework import TensorFlow
from sparktrain.training.frameworks.torch.torch_framework import Torch

ROOT = Path(__file__).parents[2]
TOO_MUCH = 2**50
"""Bytes that no host has."""


class TensorFlowUse:
    """A draw and two errors of TensorFlow."""

    framework = TensorFlow()

    @staticmethod
    def draw() -> float:
        import tensorflow as tf

        return float(tf.random.uniform([]))

    @staticmethod
    def take_too_much() -> Any:
        import tensorflow as tf

        return tf.zeros([TOO_MUCH], tf.uint8)

    @staticmethod
    def fail() -> Any:
        import tensorflow as tf

        return tf.reshape(tf.zeros([2]), [3])


class KerasUse(TensorFlowUse):
    """The same with Keras on TensorFlow, which raises the errors."""

    framework = Keras()  # type: ignore[assignment]

    @staticmethod
    def draw() -> float:
        import keras

        return float(keras.random.uniform([]))

    @staticmethod
    def parts(seed: int) -> tuple[Any, ...]:
        import keras

        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dropout(0.5, seed=seed)])
        model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
        model.train_on_batch(keras.random.normal((4, 3), seed=seed), keras.ops.ones((4, 2)))
        return (model,)


class TorchUse:
    """A draw and two errors of PyTorch, and what a checkpoint saves."""

    framework = Torch()

    @staticmethod
    def draw() -> float:
        import torch

        return float(torch.rand(()))

    @staticmethod
    def take_too_much() -> Any:
        import torch

        return torch.empty(TOO_MUCH, dtype=torch.uint8)

    @staticmethod
    def fail() -> Any:
        import torch

        return torch.zeros(2).reshape(3)

    @staticmethod
    def parts(seed: int) -> tuple[Any, ...]:
        import torch

        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
        return model, optimizer


class XGBoostUse:
    """Two errors of XGBoost, which has no global generator."""

    framework = XGBOOST

    @staticmethod
    def take_too_much() -> Any:
        import numpy as np
        import xgboost

        rows = np.zeros((4_000_000, 10), "float32")
        with at_most(len(rows)):
            xgboost.DMatrix(rows, nthread=1)

    @staticmethod
    def fail() -> Any:
        import numpy as np
        import xgboost

        xgboost.DMatrix(np.zeros((2, 3)), np.zeros(5))


class LightGBMUse:
    """Two errors of LightGBM, which has no global generator."""

    framework = LIGHTGBM

    @staticmethod
    def take_too_much() -> Any:
        import lightgbm
        import numpy as np

        rows = np.zeros((4_000_000, 10), "float32")
        data = lightgbm.Dataset(rows, np.zeros(len(rows)), params={"num_threads": 1, "verbose": -1})
        with at_most(len(rows)):
            data.construct()

    @staticmethod
    def fail() -> Any:
        import lightgbm
        import numpy as np

        lightgbm.train({"objective": "unknown", "verbose": -1}, lightgbm.Dataset(np.zeros((20, 2)), np.zeros(20)), 1)


class JaxUse:
    """Two errors of JAX, which has no global generator."""

    framework = Jax()

    @staticmethod
    def take_too_much() -> Any:
        import jax.numpy as jnp

        return jnp.zeros(TOO_MUCH, "uint8").block_until_ready()

    @staticmethod
    def fail() -> Any:
        import jax.numpy as jnp

        return jnp.zeros(2).reshape(3)


@contextmanager
def at_most(extra_bytes: int) -> Iterator[None]:
    """Let this process have so many more bytes of addresses, as a host that lacks memory does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


TORCH_USE = pytest.param(TorchUse, marks=pytest.mark.torch, id="torch")
USES = pytest.mark.parametrize("use", [TensorFlowUse, KerasUse, TORCH_USE], ids=lambda use: use.framework.module)
STATE_USES = pytest.mark.parametrize("use", [KerasUse, TORCH_USE], ids=lambda use: use.framework.module)
UNSEEDED_USES = pytest.mark.parametrize("use", [XGBoostUse, LightGBMUse, JaxUse], ids=lambda use: use.framework.module)


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any framework
        call()
    return caught.value


@USES
def test_the_same_seed_gives_the_same_numbers(use: type[TensorFlowUse]) -> None:
    use.draw()
    draws = []
    for seed in (5, 6, 5):
        use.framework.seed(seed)
        draws.append(use.draw())
    assert draws[0] == draws[2] != draws[1]


@pytest.mark.all(
    case="a tensor that is larger than any memory, for which TensorFlow waits 10 s",
    covered_by="`unit/training/test_failure`: the name of its error; other frameworks, which do not wait",
)
@USES
def test_a_lack_of_memory_is_known_and_no_other_error(use: type[TensorFlowUse]) -> None:
    assert use.framework.module in [framework.module for framework in imported()]
    assert any(framework.is_out_of_memory(raised(use.take_too_much)) for framework in ALL)
    assert not any(framework.is_out_of_memory(raised(use.fail)) for framework in ALL)


@UNSEEDED_USES
def test_a_lack_of_memory_is_known_without_generators(use: Any) -> None:
    # In a process of its own: one that has freed memory before gives it out again in spite of the limit.
    program = (
        "from sparktrain.training.failure import of_exception\n"
        f"from tests.training.test_frameworks import {use.__name__} as use, raised\n"
        "print(*(of_exception(raised(call)).kind for call in (use.take_too_much, use.fail)))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.split() == [FailureKind.MEMORY, FailureKind.EXCEPTION], ended.stdout + ended.stderr


@pytest.mark.parametrize("framework", ALL, ids=lambda framework: framework.module)
def test_errors_of_others_are_none_of_a_framework(framework: Framework) -> None:
    class MuteError(RuntimeError):
        def __str__(self) -> str:
            raise SystemExit

    for error in (MuteError(), ValueError("RESOURCE_EXHAUSTED"), KeyboardInterrupt(), MemoryError()):
        assert not framework.is_out_of_memory(error)
        assert not framework.is_broken_collective(error)


@STATE_USES
def test_a_state_comes_back_as_it_was_and_its_arrays_are_reused(use: Any, tmp_path: Path) -> None:
    parts = use.parts(5)
    assert keeper(parts) is next(framework for framework in ALL if framework.module == use.framework.module)
    state = training_state.capture(None, 3, parts=parts)
    tensor_files.save(tmp_path / "state", state.tensors, state.document)

    other_parts = use.parts(6)
    before = training_state.capture(None, 3, parts=other_parts)
    training_state.restore(None, tmp_path / "state", 0, parts=other_parts)
    restored = training_state.capture(None, 3, parts=other_parts)
    again = training_state.capture(None, 3, parts=other_parts, spare=restored.tensors)

    assert contents(restored) == contents(state) != contents(before)  # names of Keras count its models
    large = [name for name in restored.tensors if name not in module_of(use).of_chief(other_parts)]
    assert all(again.tensors[name] is restored.tensors[name] for name in large)
    assert len(large) > 4


@STATE_USES
def test_the_state_of_another_framework_is_refused_with_the_next_step(use: Any, tmp_path: Path) -> None:
    tensor_files.save(tmp_path / "state", {}, training_state.capture(None, 3).document)
    with pytest.raises(UserError, match=r"step 3 was saved without .*restore\(\)"):
        training_state.restore(None, tmp_path / "state", 0, parts=use.parts(5))
    assert not module_of(use).assign_metrics(use.parts(5), tensor_files.TensorFiles(tmp_path / "state"), (0, 1))


@STATE_USES
def test_members_differ_in_generators_alone(use: Any) -> None:
    parts = use.parts(5)
    differing = module_of(use).of_chief(parts)
    assert module_of(use).are_equal(parts)
    assert differing
    assert differing.keys() < training_state.capture(None, 3, parts=parts).tensors.keys()


def contents(state: training_state.State) -> list[bytes]:
    return [array.tobytes() for array in state.tensors.values()]


def module_of(use: Any) -> Any:
    return importlib.import_module(use.framework.state)


@pytest.mark.parametrize("framework", ALL, ids=lambda framework: framework.module)
def test_values_without_a_state_are_kept_by_no_framework(framework: Framework) -> None:
    assert not any(map(framework.keeps, (object(), 3, None, {}, [], "weights")))
    assert (framework.state is None) == (framework.module not in ("keras", "torch"))
