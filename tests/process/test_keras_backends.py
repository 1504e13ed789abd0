"""Trials of Keras 3 on JAX and on PyTorch: reports, checkpoints, and a resume in the middle, without TensorFlow."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st

TORCH = pytest.param("torch", marks=pytest.mark.torch)
JAX = pytest.param(
    "jax",
    marks=pytest.mark.all(case="the places from which Keras on JAX is chosen", covered_by="env= alone, in this file"),
)

EPOCHS = 4
STEPS = 6
KILLED_AT = 2 * STEPS + 3
"""Steps: in the middle of the third epoch."""


def train(kill: bool, ctx: st.TrainContext) -> dict[str, float]:
    """Fit a small model by the callbacks; `kill` ends its first process in the middle of an epoch."""
    import sys

    preloaded = sys.modules.keys() & {"keras"}
    import keras
    import numpy as np

    start = keras.initializers.GlorotUniform(seed=1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, "relu", kernel_initializer=start),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2, seed=3),
            keras.layers.Dense(1, kernel_initializer=start),
        ]
    )
    optimizer = ctx.distribute(keras.optimizers.Adam(st.Warmup(0.01, 5)))
    model.compile(optimizer, "mse", metrics=["mae"])
    rows = np.random.default_rng(2).normal(size=(STEPS * 8, 4)).astype("float32")

    class Kill(keras.callbacks.Callback):  # type: ignore[misc] # Keras has no types
        steps = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            if kill and ctx.generation == 1 and self.steps == KILLED_AT:
                ctx.checkpoint.wait()
                os.kill(os.getppid(), signal.SIGKILL)  # the zygote: the process itself would count as out of memory

    history = model.fit(
        rows, rows.sum(axis=1), batch_size=8, epochs=EPOCHS, shuffle=False, verbose=0,
        callbacks=[*ctx.keras_callbacks(checkpoint_every="epoch"), Kill()],
    )  # fmt: skip
    if loaded := sorted(
        {name.partition(".")[0] for name in sys.modules} & {"tensorflow", "torch", "jax"} - {keras.backend.backend()}
    ):
        raise AssertionError(f"{loaded} are imported, and Keras runs on {keras.backend.backend()}")
    digest = float(sum(np.abs(weight).sum(dtype="float64") for weight in model.get_weights()))
    metrics = {"mae": history.history["mae"][-1], "weights": digest}
    return metrics | {"generation": ctx.generation, "preloaded": len(preloaded)}


@pytest.fixture(scope="module", params=["jax", TORCH])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The trials: one that is not killed, and one that is."""
    return st.sweep(
        train, {"kill": [False, True]}, metric="mae", mode="min", spark=st.local(slots=1), progress=False,
        dir=str(tmp_path_factory.mktemp("runs")), env={"KERAS_BACKEND": request.param},
    )  # fmt: skip


def test_trials_succeed_and_report_each_epoch(run: Any) -> None:
    assert [trial.error for trial in run.trials] == [None, None]
    history = run.history()
    for trial in (0, 1):
        steps = history[history["trial"] == trial]["step"].tolist()
        assert steps == list(range(EPOCHS))


def test_a_killed_trial_resumes_and_ends_with_the_same_weights(run: Any) -> None:
    plain, killed = (trial.metrics for trial in run.trials)
    assert (plain["generation"], killed["generation"]) == (1.0, 2.0)
    assert killed["weights"] == plain["weights"]
    assert killed["mae"] == plain["mae"]


def test_keras_is_imported_before_the_trials_which_are_forked(run: Any) -> None:
    assert [trial.metrics["preloaded"] for trial in run.trials] == [1, 1]


def test_checkpoints_are_in_the_run_directory(run: Any) -> None:
    assert any(Path(run.directory).rglob("*.safetensors"))


def name_backend(expected: str) -> dict[str, float]:
    """Fit a layer; returns whether that ran on the expected backend and imported no other one."""
    import sys

    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), np.ones(4), verbose=0)
    frameworks = {name.partition(".")[0] for name in sys.modules} & {"tensorflow", "torch", "jax"}
    return {"as_expected": float(keras.backend.backend() == expected and frameworks == {expected})}


@pytest.mark.parametrize("way", ["environment", "KERAS_HOME of env=", "keras.json"])
@pytest.mark.parametrize("backend", [JAX, TORCH])
def test_a_trial_takes_its_backend_from_each_place_that_keras_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, way: str
) -> None:
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras/keras.json").write_text(json.dumps({"backend": backend}))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    env = {"KERAS_HOME": str(tmp_path / ".keras")} if way.startswith("KERAS_HOME") else {}
    if way == "keras.json":
        monkeypatch.setenv("HOME", str(tmp_path))
    elif way == "environment":
        monkeypatch.setenv("KERAS_BACKEND", backend)
    result = st.run(
        name_backend, {"expected": backend}, workers=1, spark=st.local(slots=1), env=env, dir=str(tmp_path / "runs"),
        progress=False,
    )  # fmt: skip
    assert result.metrics == {"as_expected": 1.0}


def test_a_pool_that_has_imported_keras_on_another_backend_is_named(tmp_path: Path) -> None:
    with (
        st.pool(st.local(slots=1), preload=["keras"]) as pool,
        pytest.raises(
            st.RunFailedError,
            match=r"the variable KERAS_BACKEND asks Keras for the backend 'jax', and "
            r"the processes of this pool have imported Keras on tensorflow before: .*preload=\[\]",
        ),
    ):
        pool.run(
            name_backend, {"expected": "jax"}, workers=1, env={"KERAS_BACKEND": "jax"}, progress=False,
            dir=str(tmp_path / "runs"),
        )  # fmt: skip
