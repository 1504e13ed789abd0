"""Optuna and a boosting library on executors."""

from pathlib import Path

import optuna
import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.boosted import METRIC, USES, boost_to_death


@pytest.mark.all(
    case="a study and a killed boosting on executors",
    covered_by="`process/test_optuna`, `process/test_boosting`: the same without Spark; `spark/test_run`",
)
def test_a_study_and_a_killed_boosting_end_as_without_spark(spark: SparkSession, runs: Path, tmp_path: Path) -> None:
    study = optuna.create_study(sampler=optuna.samplers.GridSampler({"x": [-1, 2]}, seed=1))
    with st.pool(spark, agents=1, preload=[]) as pool:
        st.optuna.optimize(
            study, lambda trial: trial.suggest_int("x", -3, 3) ** 2, 2, pool=pool, dir=str(runs), progress=False
        )
        space = {"use": ["xgboost"], "folder": [str(tmp_path)]}
        [trial] = pool.sweep(boost_to_death, space, metric=METRIC, mode="min", dir=str(runs)).trials
    assert sorted(trial.values for trial in study.trials) == [[1.0], [4.0]]
    assert (trial.status, trial.generations) == ("succeeded", 2)
    with st.testing.local_context() as ctx:
        assert (tmp_path / "model-2").read_text() == USES["xgboost"].train(ctx).model
