"""A driver that trains a pipeline on a Spark Connect session, in its own process.

python -m tests.spark.ml_connect_driver FOLDER: prints its results as one JSON object.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.tuning import TrainValidationSplit
from pyspark.sql import functions as sql

from sparktrain.ml import KerasEstimator
from tests.spark.keras_stages import build
from tests.support.local_spark import LOCAL_CLUSTER, spark_session

INPUTS = ["a", "b", "c"]


def main(folder: Path) -> None:
    with spark_session(LOCAL_CLUSTER, folder, connect=True) as spark:
        number = sql.col("id")
        columns = [
            (number % modulus).cast("double").alias(name) for name, modulus in zip(INPUTS, (7, 5, 2), strict=True)
        ]
        table = spark.range(0, 60, 1, 3).select("id", *columns).withColumn("label", sql.col("a") + sql.col("b"))
        estimator = KerasEstimator(build, dir=str(folder / "runs"), runOptions={"progress": False})
        maps: list[Any] = [{estimator.modelParams: {"units": units}} for units in (2, 4)]
        tuning = TrainValidationSplit(
            estimator=estimator, estimatorParamMaps=maps, evaluator=RegressionEvaluator(), seed=1
        )
        pipeline = Pipeline(stages=[VectorAssembler(inputCols=INPUTS, outputCol="features"), tuning])
        model = pipeline.fit(table)
        best = PipelineModel([model.stages[0], model.stages[1].bestModel])
        for _ in range(2):
            best.write().overwrite().save(str(folder / "model"))
        loaded = PipelineModel.load(str(folder / "model"))
        seen = {
            "session": type(spark).__module__,
            "metrics": len(model.stages[1].validationMetrics),
            "found": [row["prediction"] for row in best.transform(table).orderBy("id").collect()],
            "loaded": [row["prediction"] for row in loaded.transform(table).orderBy("id").collect()],
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
