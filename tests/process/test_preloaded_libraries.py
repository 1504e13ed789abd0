"""Sweeps of every library in the lock: trials find it imported, and train in processes that are forked from one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.usercode.serialize import preload_choice
from tests.process.harness import Bench
from tests.unit.scripted import of_a_script


@of_a_script
def sklearn_trial(threads: int, number: int) -> dict[str, float]:
    import os
    import sys

    imported = sum(name.partition(".")[0] == "sklearn" for name in sys.modules)
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    added = sum(name.partition(".")[0] == "sklearn" for name in sys.modules) - imported
    x = np.random.default_rng(0).random((500, 8))
    y = x[:, 0] > 0.5
    with threadpool_limits(threads):
        score = HistGradientBoostingClassifier(max_iter=5).fit(x, y).score(x, y)
    return {"imported": imported, "added": added, "score": score, "process": os.getpid()}


@of_a_script
def xgboost_trial(threads: int, number: int) -> dict[str, float]:
    import os
    import sys

    imported = sum(name.partition(".")[0] == "xgboost" for name in sys.modules)
    import numpy as np
    import xgboost

    added = sum(name.partition(".")[0] == "xgboost" for name in sys.modules) - imported
    x = np.random.default_rng(0).random((500, 8))
    y = x[:, 0] > 0.5
    data = xgboost.DMatrix(x, y, nthread=threads)
    params = {"nthread": threads, "objective": "binary:logistic"}
    score = ((xgboost.train(params, data, num_boost_round=5).predict(data) > 0.5) == y).mean()
    return {"imported": imported, "added": added, "score": float(score), "process": os.getpid()}


@of_a_script
def lightgbm_trial(threads: int, number: int) -> dict[str, float]:
    import os
    import sys

    imported = sum(name.partition(".")[0] == "lightgbm" for name in sys.modules)
    import lightgbm
    import numpy as np

    added = sum(name.partition(".")[0] == "lightgbm" for name in sys.modules) - imported
    x = np.random.default_rng(0).random((500, 8))
    y = x[:, 0] > 0.5
    params = {"num_threads": threads, "verbose": -1, "objective": "binary"}
    model = lightgbm.train(params, lightgbm.Dataset(x, y), num_boost_round=5)
    score = ((model.predict(x, num_threads=threads) > 0.5) == y).mean()
    return {"imported": imported, "added": added, "score": float(score), "process": os.getpid()}


@of_a_script
def jax_trial(threads: int, number: int) -> dict[str, float]:
    import os
    import sys

    imported = sum(name.partition(".")[0] == "jax" for name in sys.modules)
    os.environ["NPROC"] = str(threads)  # what XLA takes for the number of processors
    import jax
    import jax.numpy as jnp

    added = sum(name.partition(".")[0] == "jax" for name in sys.modules) - imported
    x = jax.random.uniform(jax.random.key(0), (500, 8))
    y = jnp.where(x[:, 0] > 0.5, 1.0, -1.0)
    step = jax.jit(jax.grad(lambda weights: jnp.square(x @ weights[1:] + weights[0] - y).mean()))
    weights = jnp.zeros(9)
    for _ in range(200):
        weights = weights - 0.2 * step(weights)
    score = (jnp.sign(x @ weights[1:] + weights[0]) == y).mean()
    return {"imported": imported, "added": added, "score": float(score), "process": os.getpid()}


@of_a_script
def torch_trial(threads: int, number: int) -> dict[str, float]:
    import os
    import sys

    imported = sum(name.partition(".")[0] == "torch" for name in sys.modules)
    import torch

    torch.set_num_threads(threads)
    x = torch.rand((500, 8), generator=torch.Generator().manual_seed(0))
    y = torch.where(x[:, 0] > 0.5, 1.0, -1.0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(200):
        optimizer.zero_grad()
        (model(x)[:, 0] - y).square().mean().backward()
        optimizer.step()
    added = sum(name.partition(".")[0] == "torch" for name in sys.modules) - imported
    score = (torch.sign(model(x)[:, 0]) == y).float().mean()
    return {"imported": imported, "added": added, "score": float(score), "process": os.getpid()}


OTHERS = pytest.mark.all(
    case="trials of scikit-learn and LightGBM in forks", covered_by="those of XGBoost and JAX; `process/test_boosting`"
)
SKLEARN = pytest.mark.all(
    case="a zygote for scikit-learn has no other framework", covered_by="one for boosters, which import it, has none"
)
TRIALS = [
    pytest.param(sklearn_trial, marks=OTHERS),
    pytest.param(lightgbm_trial, marks=OTHERS),
    xgboost_trial,
    jax_trial,
    pytest.param(torch_trial, marks=pytest.mark.torch),
]


@pytest.mark.parametrize("trial", TRIALS)
def test_trials_train_in_forks_of_a_process_that_has_imported_the_library(
    trial: Callable[..., Any], runs: Path
) -> None:
    space = {"threads": [1, 4], "number": [0, 1]}
    result = st.sweep(
        trial, space,
        metric="score", mode="max", spark=st.local(slots=2), dir=str(runs), progress=False,
    )  # fmt: skip
    assert result.status == "succeeded"
    table = result.to_pandas()
    assert table["metrics.imported"].min() > 0
    assert table["metrics.added"].max() == 0
    assert table["metrics.score"].min() > 0.9
    assert table["metrics.process"].nunique() == 4


FRAMEWORKS = ("jax", "keras", "lightgbm", "sklearn", "tensorflow", "torch", "xgboost")


@of_a_script
def imports_keras(names: tuple[str, ...] = FRAMEWORKS) -> dict[str, float]:
    import sys

    import keras
    import tensorflow as tf
    from tensorflow.lite.python import util

    assert keras.backend.backend() == "tensorflow"
    assert tf.lite.TFLiteConverter
    loaded = {name: int(name in sys.modules) for name in names}
    assert float(util._jit(lambda x: x + 1)(1)) == 2, "the converter has JAX when it uses it"
    assert "jax" in sys.modules
    return loaded


@of_a_script
def imports_sklearn(names: tuple[str, ...] = FRAMEWORKS) -> dict[str, float]:
    import sys

    from sklearn.linear_model import LogisticRegression

    LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    return {name: int(name in sys.modules) for name in names}


@of_a_script
def imports_boosters(names: tuple[str, ...] = FRAMEWORKS) -> dict[str, float]:
    import sys

    import lightgbm
    import xgboost

    assert lightgbm.train
    assert xgboost.train
    return {name: int(name in sys.modules) for name in names}


@of_a_script
def imports_jax(names: tuple[str, ...] = FRAMEWORKS) -> dict[str, float]:
    import sys

    import jax

    assert float(jax.numpy.ones(2).sum()) == 2
    return {name: int(name in sys.modules) for name in names}


@of_a_script
def imports_torch(names: tuple[str, ...] = FRAMEWORKS) -> dict[str, float]:
    import sys

    import torch

    assert float(torch.ones(2).sum()) == 2
    return {name: int(name in sys.modules) for name in names}


@pytest.mark.parametrize(
    ("function", "loaded"),
    [
        (imports_keras, {"keras", "tensorflow"}),
        pytest.param(imports_sklearn, {"sklearn"}, marks=SKLEARN),
        (imports_boosters, {"lightgbm", "sklearn", "xgboost"}),
        (imports_jax, {"jax"}),
        pytest.param(imports_torch, {"torch"}, marks=pytest.mark.torch),
    ],
)
async def test_a_zygote_has_only_the_frameworks_of_its_function(
    bench: Bench, function: Callable[..., Any], loaded: set[str]
) -> None:
    """Neither TensorFlow nor Keras brings JAX or torch along, and scikit-learn none of them."""
    assert await bench.zygote.preload(preload_choice(function).modules) == {}
    trial = await bench.run(function)
    assert {name for name in FRAMEWORKS if trial.metrics[name]} == loaded
