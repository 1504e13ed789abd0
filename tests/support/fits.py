"""The kinds of `fit` in gangs: the matrix of trainings chooses which of them a test of those that heal runs for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparktrain.config.option_catalog import BackendName
from sparktrain.usercode.preload import pool_modules
from tests import trainings


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A `fit` of Keras on one framework."""

    name: str
    backend: BackendName
    preload: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    traces: bool = True
    """Whether a process traces its step, once."""
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Those of a run."""
        return {"backend": self.backend, "env": dict(self.env)}


HOROVOD = "Keras `fit`, TensorFlow, Horovod"
JAX = "Keras `fit`, JAX"
FITS = {
    HOROVOD: Fit(name="tensorflow", backend="horovod", preload=("tensorflow", "keras", "horovod.tensorflow")),
    "Keras `fit`, PyTorch": Fit(
        name="torch",
        backend="torch",
        preload=pool_modules("torch"),
        env={"KERAS_BACKEND": "torch"},
        traces=False,
        marks=(pytest.mark.torch,),
    ),
    JAX: Fit(
        name="jax",
        backend="jax",
        preload=pool_modules("jax"),
        env={"KERAS_BACKEND": "jax"},
        traces=False,
        marks=(pytest.mark.all(case="fits on JAX that heal", covered_by="fits on TensorFlow that heal"),),
    ),
}
"""By the names of the matrix."""


def run_for(names: Sequence[str]) -> Any:
    """Runs a test for the fits with these names."""
    fits = [pytest.param(FITS[name], id=FITS[name].name, marks=FITS[name].marks) for name in names]
    return pytest.mark.parametrize("fit", fits, indirect=True, scope="module")


def shown(test: Callable[..., Any]) -> Any:
    """Runs a test for the fits with a cell in the matrix that names it."""
    file = test.__module__.removeprefix("tests.").replace(".", "/")
    names = trainings.shown_by(f"{file}::{test.__name__}")
    assert names, f"tests/trainings.csv names {test.__name__} nowhere"
    return run_for(names)(test)


each_fit = run_for([*FITS])
on_horovod = run_for([HOROVOD])
