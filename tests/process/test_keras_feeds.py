"""Feeds of `fit` on JAX and PyTorch: a trial that is killed in the middle of an epoch trains each batch once."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sparktrain as st
from tests.process import keras_feeds

JAX = pytest.param(
    "jax",
    marks=pytest.mark.all(
        case="feeds of Keras on JAX, killed in the middle of an epoch",
        covered_by="`unit/training/data/test_position`; TensorFlow's feeds",
    ),
)
TORCH = pytest.param("torch", marks=pytest.mark.torch)
KINDS = {"jax": ["to_keras", "to_numpy", "iter_batches"], "torch": ["to_keras", "to_torch", "iter_batches"]}
pytestmark = pytest.mark.timeout(300)  # each trial imports Keras, and each one that is killed does it twice


@pytest.fixture(scope="module", params=[JAX, TORCH])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trial that feeds `fit` in each way, and is not killed, and one for each way that is."""
    x = np.random.default_rng(2).normal(size=(keras_feeds.ROWS, 4)).astype("float32")
    table = pa.table({"x": pa.array(list(x), pa.list_(pa.float32(), 4)), "y": x.sum(axis=1)})
    kinds = KINDS[request.param]
    space = {"kinds": [kinds, *([kind] for kind in kinds)], "kill": [False, *[True] * len(kinds)]}
    return st.launch(
        st.local(slots=2), keras_feeds.train, space,
        progress=False, dir=str(tmp_path_factory.mktemp("runs")), data={"train": table},
        env={"KERAS_BACKEND": request.param},
    )  # fmt: skip


def test_a_killed_trial_resumes_in_the_middle_of_an_epoch_and_ends_with_the_same_weights(run: Any) -> None:
    assert [trial.error for trial in run.trials] == [None] * len(run.trials)
    whole = keras_feeds.EPOCHS * keras_feeds.STEPS
    plain, *others = (trial.metrics for trial in run.trials)
    for kind, killed in zip(run.trials[0].params["kinds"], others, strict=True):
        assert (plain[f"{kind} steps"], plain["generation"]) == (whole, 1), kind
        assert killed["generation"] == 2, kind
        # The newest checkpoint is in the middle of the second epoch.
        assert keras_feeds.STEPS < whole - killed[f"{kind} steps"] < keras_feeds.KILLED_AT, kind
        assert killed[f"{kind} weights"] == plain[f"{kind} weights"], kind


def test_shuffled_feeds_train_in_another_order(run: Any) -> None:
    metrics = run.trials[0].metrics
    weights = {kind: metrics[f"{kind} weights"] for kind in run.trials[0].params["kinds"]}
    assert weights["to_keras"] != weights["iter_batches"]
    if "to_torch" in weights:
        assert weights["to_torch"] == weights["to_keras"]
