"""Which modules a zygote imports for some code."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.usercode.preload import KerasInTrials, keras_left_by_pool, pool_modules, shared
from sparktrain.usercode.serialize import preload_choice
from sparktrain.usercode.target import resolve

BODIES = [
    ("pass", ()),
    ("import numpy", ("numpy",)),
    ("import keras; from tensorflow import data", ("keras", "tensorflow")),
    ("import numpy.linalg, pandas.api.types", ("numpy", "pandas")),
    ("from sklearn.svm import SVC; import scipy.stats as s", ("scipy.stats", "sklearn.svm")),
    ("import scipy; scipy.stats.norm", ("scipy", "scipy.stats")),
    ("import sklearn as k; k.svm.SVC()", ("sklearn", "sklearn.svm")),
    ("from sklearn import ensemble", ("sklearn.ensemble",)),
    ("import keras; keras.wrappers.SKLearnClassifier", ("keras", "sklearn")),
    ("import pyarrow.flight, pyarrow.parquet", ("pyarrow.parquet",)),
    ("import torch.nn.functional, json, polars, os.path", ("torch", "torch._dynamo")),
    ("import xgboost as xgb; xgb.train; import lightgbm, jax.numpy as jnp", ("jax", "lightgbm", "xgboost")),
    ("from transformers import Trainer", ("transformers", "transformers.trainer")),
    ("from accelerate.utils import set_seed; import lightning.pytorch as pl", ("accelerate", "lightning")),
    ("import os; os.environ['RANK'] = '1'; import lightning, transformers", ("transformers", "transformers.trainer")),
    ("import os; os.environ['HF_HOME'] = 'x'; import accelerate, torch, transformers", ("torch", "torch._dynamo")),
    ("import catboost, polars", ()),
    ("import os; os.environ['JAX_PLATFORMS'] = 'cpu'; import jax, torch", ("torch", "torch._dynamo")),
    ("import os; os.environ['TORCH_LOGS'] = 'dynamo'; import jax, torch", ("jax",)),
    ("import os; os.environ['KERAS_BACKEND'] = 'jax'; import keras, numpy", ("numpy",)),
    ("import os; os.environ['KERAS_BACKEND'] = 'torch'; import tensorflow, numpy", ("numpy",)),
    ("import os; os.environ['OMP_NUM_THREADS'] = '1'; import numpy", ()),
    ("import os; print(os.environ.get('OMP_NUM_THREADS')); import numpy", ("numpy",)),
    ("import os; print('OMP_NUM_THREADS'); os.environ['OTHER'] = '1'; import numpy", ("numpy",)),
    ("import os\n    for name in ('OMP_NUM_THREADS', 'OTHER'):\n        os.environ[name] = '1'\n    import numpy", ()),
    ("from pyspark.sql import SparkSession", ("pyspark",)),
    ("import pyspark.sql.connect.session, pyspark.ml.feature", ("pyspark",)),
    ("import os; os.environ['OMP_NUM_THREADS'] = '1'; import numpy, pyspark", ("pyspark",)),
    (
        "import optuna.samplers as s",
        ("optuna",),
    ),  # not installed with the tests, as a driver may lack what executors have
    ("lambda: __import__('x'); (lambda: numpy)()", ()),
    ("import ship_reads", ("pandas",)),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on `sys.path`."""
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ship_reads.py").write_text("def f():\n    import pandas\n")
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name.startswith("ship_"):
            del sys.modules[name]


@pytest.mark.parametrize(("body", "modules"), BODIES)
def test_of_a_file(body: str, modules: tuple[str, ...], folder: Path) -> None:
    file = folder / "ship_preload.py"
    file.write_text(f"def train():\n    {body}\n")
    assert preload_choice(resolve(f"{file}:train")).modules == modules


@pytest.mark.parametrize(("body", "modules"), BODIES)
@pytest.mark.usefixtures("folder")
def test_of_a_function(body: str, modules: tuple[str, ...]) -> None:
    assert preload_choice(cell(f"def train():\n    {body}\n")).modules == modules


GANGS = [
    (GangSpec(workers=2), "pass", ("horovod.tensorflow", "keras", "tensorflow")),
    (GangSpec(workers=2, backend=Backend.TENSORFLOW), "import numpy", ("keras", "numpy", "tensorflow")),
    (GangSpec(workers=2, backend=Backend.NONE), "import numpy", ("numpy",)),
    (GangSpec(workers=1), "pass", ()),
    (
        GangSpec(workers=2),
        "import os; os.environ['KERAS_BACKEND'] = 'tensorflow'; import keras",
        ("horovod.tensorflow", "tensorflow"),
    ),
    (GangSpec(workers=2), "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'", ()),
]


@pytest.mark.parametrize(("gang", "body", "modules"), GANGS)
def test_of_a_gang(gang: GangSpec, body: str, modules: tuple[str, ...]) -> None:
    assert preload_choice(cell(f"def train():\n    {body}\n"), gang).modules == modules


def cell(source: str, **names: Any) -> Callable[..., Any]:
    """The function `train` of a notebook cell."""
    space = {"__name__": "__main__", **names}
    exec(compile(source, "<cell>", "exec"), space)
    return space["train"]  # type: ignore[no-any-return]


def test_of_what_a_function_reads() -> None:
    import numpy
    import pandas
    from pyarrow.parquet import ParquetWriter

    source = """
class Model:
    def fit(self): return table.sum()
    @property
    def name(self): return ParquetWriter
def helper(): return Model()
def train(a=array): return helper()
"""
    train = cell(source, array=numpy.ones(1), table=pandas.Series([1]), ParquetWriter=ParquetWriter)
    assert preload_choice(train).modules == ("numpy", "pandas", "pyarrow.parquet.core")


def test_of_a_module_that_a_function_was_imported_from(folder: Path) -> None:
    (folder / "ship_module.py").write_text("import ship_reads\nimport pyarrow\ndef train(): pass\n")
    import ship_module  # type: ignore[import-not-found]

    assert preload_choice(ship_module.train).modules == ("pandas", "pyarrow")


def test_of_a_script_that_is_run_as_a_module(folder: Path) -> None:
    (folder / "ship_pack").mkdir()
    (folder / "ship_pack" / "inner.py").write_text("import pandas\n")
    names = {"__package__": "ship_pack"}
    assert preload_choice(cell("def train():\n    from . import inner", **names)).modules == ("pandas",)
    assert preload_choice(cell("def train():\n    from .inner import x", **names)).modules == ("pandas",)


def test_a_keras_on_another_backend_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backend:
        @staticmethod
        def backend() -> str:
            return "jax"

    class Keras:
        backend = Backend

    monkeypatch.setitem(sys.modules, "keras", Keras)  # type: ignore[arg-type]  # stands in for the module
    choice = preload_choice(cell("def train():\n    import keras, numpy"))
    assert choice.modules == ("numpy",)
    assert choice.notes == ("keras (4.0 s) is imported in each trial: here it runs on jax",)


ON_JAX = "sparktrain.training.frameworks.keras.preloads.on_jax"
ON_TORCH = "sparktrain.training.frameworks.keras.preloads.on_torch"


@pytest.mark.parametrize(
    ("body", "keras", "env", "modules"),
    [
        ("import keras, numpy", KerasInTrials("jax"), (), ("jax", "numpy", ON_JAX)),
        ("import keras", KerasInTrials("torch"), ("KERAS_BACKEND",), (ON_TORCH, "torch", "torch._dynamo")),
        (
            "import os; os.environ['KERAS_BACKEND'] = 'jax'; import keras",
            KerasInTrials("jax", by_code=True),
            (),
            ("jax", ON_JAX),
        ),
        ("import os; os.environ['KERAS_BACKEND'] = x; import keras", KerasInTrials("jax"), (), ()),
        ("import keras", KerasInTrials("jax"), ("JAX_PLATFORMS",), ()),
        ("import keras", KerasInTrials("jax"), ("KERAS_HOME",), ()),
        ("import keras", KerasInTrials("numpy"), ("KERAS_BACKEND",), ()),
        ("import keras", KerasInTrials("tensorflow"), (), ("keras",)),
        ("import numpy", KerasInTrials("jax"), (), ("numpy",)),
    ],
)
def test_keras_is_imported_on_the_backend_that_all_trials_have(
    body: str, keras: KerasInTrials, env: tuple[str, ...], modules: tuple[str, ...]
) -> None:
    choice = preload_choice(cell(f"def train(x=1):\n    {body}"), env=env, keras=keras)
    assert choice.modules == modules
    assert shared(choice.modules) == tuple(name for name in modules if name not in (ON_JAX, ON_TORCH))


def test_a_pool_imports_keras_on_the_backend_of_its_process_and_leaves_others() -> None:
    modules = pool_modules("jax")
    assert modules == ("numpy", "jax", ON_JAX)
    assert keras_left_by_pool((ON_JAX, "jax"), modules) == ""
    left = "keras (4.0 s) is imported in each trial: the pool may train on other backends"
    assert keras_left_by_pool((ON_TORCH, "torch"), modules) == left


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ((), ("numpy", "tensorflow")),
        (("TF_CPP_MIN_LOG_LEVEL",), ("numpy",)),
        (("OMP_NUM_THREADS",), ()),
        (("HF_HOME",), ("numpy", "tensorflow")),
    ],
)
def test_modules_that_read_a_trials_variable_on_import_are_left_to_trials(
    env: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert preload_choice(cell("def train():\n    import numpy, tensorflow"), env=env).modules == left


@pytest.mark.parametrize(
    ("body", "env", "notes"),
    [
        ("import numpy, wandb", (), ()),
        (
            "import lightning.pytorch",
            ("RANK",),
            (
                "lightning (2.3 s) is imported in each trial: read on import, RANK is set by the call; "
                "preload=['lightning'] imports it before",
            ),
        ),
        (
            "import polars, catboost",
            (),
            (
                "polars (0.5 s) is imported in each trial: it starts a thread on import, which a fork loses",
                "catboost (1.1 s) is imported in each trial: it imports polars",
            ),
        ),
        (
            "import os; os.environ['OMP_NUM_THREADS'] = os.environ['MKL_NUM_THREADS'] = '1'; import numpy, torch",
            (),
            (
                "numpy (0.1 s) and torch (5.7 s) are imported in each trial: read on import, MKL_NUM_THREADS and "
                "OMP_NUM_THREADS are set by the code; preload=['numpy', 'torch'] imports them before",
            ),
        ),
        (
            "import os; os.environ['JAX_PLATFORMS'] = 'cpu'; import jax, matplotlib",
            ("MPLBACKEND", "JAX_PLATFORMS"),
            (
                "jax (0.6 s) is imported in each trial: read on import, JAX_PLATFORMS is set by the call; "
                "preload=['jax'] imports it before",
                "matplotlib is imported in each trial: read on import, MPLBACKEND is set by the call; "
                "preload=['matplotlib'] imports it before",
            ),
        ),
    ],
)
def test_what_is_left_to_trials_is_noted_with_its_reason(
    body: str, env: tuple[str, ...], notes: tuple[str, ...]
) -> None:
    assert preload_choice(cell(f"def train():\n    {body}"), env=env).notes == notes


def test_a_name_in_another_file_counts_where_a_name_is_computed(folder: Path) -> None:
    (folder / "ship_names.py").write_text("NAMES = ['OMP_NUM_THREADS']\n")
    (folder / "ship_sets.py").write_text(
        "import os, numpy, ship_names\nfor name in ship_names.NAMES:\n    os.environ[name] = '1'\ndef train(): pass\n"
    )
    assert preload_choice(resolve(f"{folder / 'ship_sets.py'}:train")).modules == ()
    (folder / "ship_sets.py").write_text("import numpy, ship_names\ndef train(): pass\n")
    del sys.modules["ship_sets"]
    assert preload_choice(resolve(f"{folder / 'ship_sets.py'}:train")).modules == ("numpy",)


@pytest.mark.parametrize(
    ("imported", "modules"),
    [
        ((), ("numpy", "keras", "tensorflow")),
        (("torch", "numpy"), ("numpy", "torch", "torch._dynamo")),
        (("sklearn", "xgboost"), ("numpy", "sklearn", "xgboost")),
        (("sklearn", "tensorflow"), ("numpy", "keras", "tensorflow")),
    ],
)
def test_a_pool_imports_the_frameworks_of_its_process(
    imported: tuple[str, ...], modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jax", "lightgbm", "sklearn", "tensorflow", "torch", "xgboost"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in imported:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert pool_modules() == modules


def test_nothing_is_imported() -> None:
    before = set(sys.modules)
    preload_choice(cell("def train():\n    import h5py, sklearn.gaussian_process"))
    assert set(sys.modules) == before


def test_the_training_function_of_a_benchmark_has_its_libraries_in_the_zygote() -> None:
    """Texts in its modules name packages of this checkout, and files there name variables that libraries read."""
    from benchmarks.recovery import train

    assert {"keras", "numpy"} <= set(preload_choice(train).modules)
