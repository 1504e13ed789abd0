"""Programs of users in an environment that cannot import TensorFlow: driver, agents, zygotes and members alike.

The first process of one trial, or one member of a gang, is killed in each of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKED = """\
from importlib.machinery import PathFinder

plain = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] == "tensorflow" else plain(name, path, target)


PathFinder.find_spec = find_spec
"""
"""What each process executes at its start: TensorFlow is nowhere to be found, as where it is not installed."""
COMMON = """\
import os
import signal
import sys
from pathlib import Path

import sparktrain as st


def kill_once(pid):
    mark = Path(os.environ["MARKS"], "killed")
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(pid, signal.SIGKILL)


"""
SEARCH = """\
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


class Mortal(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        kill_once(os.getppid())
        return self

    def transform(self, X):
        assert "tensorflow" not in sys.modules
        return X


if __name__ == "__main__":
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = Pipeline([("scale", StandardScaler()), ("mortal", Mortal()), ("svc", SVC())])
    search = st.sklearn.search_cv(
        pipeline, {"svc__C": [0.1, 1.0]}, X, y, cv=2, scoring="accuracy", spark=st.local(slots=2), progress=False
    )
    assert search.best_score_ > 0.9
    assert len(search.predict(X)) == len(X)
"""
SWEEP = """\
def train(learning_rate, units, ctx):
    import keras
    import numpy as np

    points = np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype("float32")
    labels = points[:, 0] * points[:, 1] > 0
    model = keras.Sequential(
        [keras.layers.Dense(units, activation="relu"), keras.layers.Dense(1, activation="sigmoid")]
    )
    model.compile(keras.optimizers.Adam(learning_rate), loss="binary_crossentropy", metrics=["accuracy"])
    end = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epoch == 2 and kill_once(os.getppid()))
    history = model.fit(
        points, labels.astype("float32"), validation_split=0.25, epochs=4, verbose=0,
        callbacks=[*ctx.keras_callbacks(), end],
    ).history
    ctx.export(keras.Model(x := keras.Input((2,)), model(x)))
    assert "tensorflow" not in sys.modules
    return {"accuracy": history["val_accuracy"][-1]}


if __name__ == "__main__":
    space = {"learning_rate": [0.01], "units": [8, 16]}
    result = st.sweep(train, space, metric="accuracy", spark=st.local(slots=2), progress=False)
    assert [trial.error for trial in result.trials] == [None, None]

    import numpy as np
    from sparktrain.ml.inference.backend_setup import set_up
    from sparktrain.ml.inference.loaded_model import LoadedModel

    model = LoadedModel(Path(result.best.model_path), set_up(1, None))
    signature = model.signature()
    rows = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype("float32")
    [predicted] = model.rows([rows], signature, 4)
    expected = np.asarray(result.best.load_model().predict(rows, verbose=0))
    assert predicted.shape == (5, 1) and np.abs(predicted - expected).max() < 1e-6
    assert "tensorflow" not in sys.modules
"""
TORCH = """\
def train(lr, ctx):
    import torch

    torch.manual_seed(ctx.seed)
    x = torch.randn(64, 2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    restored = ctx.checkpoint.restore(model, optimizer)
    for step in range(restored.step + 1 if restored else 1, 5):
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        ctx.report(step, loss=float(loss.detach()))
        ctx.checkpoint.save(step, model, optimizer)
        if step == 2:
            ctx.checkpoint.wait()
            kill_once(os.getppid())
    assert "tensorflow" not in sys.modules
    return {"loss": float(loss.detach())}


if __name__ == "__main__":
    result = st.sweep(train, {"lr": [0.1, 0.01]}, metric="loss", spark=st.local(slots=2), progress=False)
    assert [trial.error for trial in result.trials] == [None, None]
"""
GANG = """\
def train(ctx):
    import keras
    import numpy as np

    x = np.random.default_rng(ctx.rank).normal(size=(24, 3)).astype("float32")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(ctx.distribute(keras.optimizers.SGD(0.1)), "mse")

    def end(epoch, logs):
        if ctx.rank == 1 and epoch == 2:
            kill_once(os.getpid())

    callbacks = [*ctx.keras_callbacks(), keras.callbacks.LambdaCallback(on_epoch_begin=end)]
    share = ctx.shard((x, x.sum(1)), batch_size=4)
    model.fit(share, epochs=5, verbose=0, callbacks=callbacks)
    assert "tensorflow" not in sys.modules
    return {"generation": ctx.generation}


if __name__ == "__main__":
    result = st.run(train, {}, workers=2, spark=st.local(slots=2), progress=False)
    assert result.metrics == {"generation": 1.0}, "the other member keeps its process"
    assert [restart.rank for restart in result.restarts] == [1]
"""
ON_TORCH = pytest.mark.torch
SLOW = pytest.mark.all(
    case="a pipeline and Keras on JAX in an environment without TensorFlow, with a killed process",
    covered_by="`process/test_keras_backends`: no trial of JAX imports TensorFlow",
)


@pytest.mark.parametrize(
    ("program", "backend"),
    [
        pytest.param(SEARCH, "", marks=SLOW, id="a scikit-learn pipeline"),
        pytest.param(SWEEP, "jax", marks=SLOW, id="Keras on JAX"),
        pytest.param(SWEEP, "torch", marks=ON_TORCH, id="Keras on PyTorch"),
        pytest.param(TORCH, "", marks=ON_TORCH, id="PyTorch"),
        pytest.param(GANG, "torch", marks=ON_TORCH, id="a gang of Keras on PyTorch"),
    ],
)
def test_a_program_runs_without_tensorflow(tmp_path: Path, program: str, backend: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    (tmp_path / "program.py").write_text(COMMON + program)
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KERAS_BACKEND")}
    own = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "MARKS": str(tmp_path)}
    chosen = {"KERAS_BACKEND": backend} if backend else {}
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=inherited | own | chosen,
        capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert (tmp_path / "killed").exists()
