"""A search of scikit-learn on executors, with rows of a Spark DataFrame."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from sparktrain.errors import SpecError
from sparktrain.sklearn import search_cv


def test_rows_of_spark_have_the_scores_of_the_same_rows_in_pandas(spark: SparkSession, runs: Path) -> None:
    table = load_iris(as_frame=True).frame.rename(columns=lambda name: name.replace(" (cm)", "").replace(" ", "_"))
    rows = spark.createDataFrame(table).orderBy(*table.columns)
    space = {"alpha": [0.1, 10.0]}
    search = search_cv(Ridge(), space, rows, "target", cv=2, spark=spark, dir=str(runs), name="s", progress=False)
    ordered: pd.DataFrame = rows.toPandas()
    X, y = ordered.drop(columns="target"), ordered["target"]
    expected = GridSearchCV(Ridge(), space, cv=2).fit(X, y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(search.predict(X), expected.predict(X))
    with pytest.raises(SpecError, match="y is a DataFrame of Spark, and two of them have no common order of rows"):
        search_cv(Ridge(), space, rows, rows.select("target"), spark=spark)
    unread = rows.selectExpr("raise_error('rows were read') AS target")
    with pytest.raises(SpecError, match=r"y \('targt'\) is no column of X; did you mean 'target'"):
        search_cv(Ridge(), space, unread, "targt", spark=spark)
