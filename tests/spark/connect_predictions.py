"""Predictions on a Spark Connect session, in a process of their own: a process has sessions of one kind.

python -m tests.spark.connect_predictions FOLDER MODEL: prints its results as one JSON object.
"""

import json
import sys
from pathlib import Path

import sparktrain as st
from tests.spark.scoring_models import ROWS, features
from tests.support.local_spark import LOCAL_CLUSTER, spark_session


def main(folder: Path, model: str) -> None:
    with spark_session(LOCAL_CLUSTER, folder, connect=True) as spark:
        rows = [(i, features()[i].tolist()) for i in range(ROWS)]
        table = spark.createDataFrame(rows, "id int, features array<double>").coalesce(1)
        st.register_predict(spark, "churn", model)
        table.createOrReplaceTempView("customers")
        try:
            refused = str(st.predict(table, model, columns="feature"))
        except st.DataError as error:
            refused = str(error)
        seen = {
            "session": type(spark).__module__,
            "frame": [row.prediction for row in st.predict(table, model).orderBy("id").collect()],
            "sql": [row.p for row in spark.sql("SELECT churn(features) AS p FROM customers ORDER BY id").collect()],
            "refused": refused,
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
