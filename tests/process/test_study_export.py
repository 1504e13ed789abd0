"""A real sweep as a study of Optuna."""

from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution

import sparktrain as st


def test_a_sweep_in_a_directory_has_its_space_and_its_curves(tmp_path: Path) -> None:
    def train(lr: float, model: dict[str, Any], ctx: Any) -> float:
        for step in range(3):
            ctx.report(step, loss=lr * (3 - step))
        return lr + model["units"]

    found = st.sweep(
        train, {"lr": st.uniform(0, 1), "model": {"units": [1, 2], "kind": "mlp"}}, spark=st.local(slots=1),
        metric="loss", mode="min", trials=4, sampler="random", seed=3, dir=str(tmp_path), name="s", progress=False,
    )  # fmt: skip
    study = found.to_study()
    first = study.trials[0]
    assert first.distributions == {"lr": FloatDistribution(0, 1), "model.units": CategoricalDistribution((1, 2))}
    assert first.params["lr"] == found.trials[0].params["lr"]
    lr = first.params["lr"]
    assert first.intermediate_values == {step: lr * (3 - step) for step in range(3)}
    assert first.datetime_start is not None
    assert first.datetime_complete is not None
    assert first.datetime_start <= first.datetime_complete
    assert study.best_value == found.best.metrics["loss"]
    importance = optuna.importance.get_param_importances(study)
    assert set(importance) == {"lr", "model.units"}
    assert [each.params for each in st.load(str(tmp_path / "s")).to_study().trials] == [  # type: ignore[union-attr]
        each.params for each in study.trials
    ]
