"""Spark reads the reports of a run as one table."""

import math
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import FAN_IN, MetricLog
from sparktrain.rundir.report_parts import lines_of, step_row
from sparktrain.store.localfs import LocalStore


def test_spark_reads_the_folder_of_reports(spark: SparkSession, runs: Path) -> None:
    log = MetricLog(LocalStore(str(runs)), RunLayout("mnist"))
    for step in range(FAN_IN + 2):  # a joined part, and two others
        metrics = {"loss": 1e300 if step else math.nan, "🎉": step / 4}
        log.append(lines_of([step_row(3, 1, 0, step, 1_700_000_000.5 + step, metrics)]))

    table = spark.read.parquet(str(runs / "mnist" / "reports"))

    assert [(field.name, field.dataType.simpleString()) for field in table.schema] == [
        ("trial", "int"), ("generation", "int"), ("rank", "int"), ("step", "bigint"), ("time", "timestamp"),
        ("name", "string"), ("value", "double"),
    ]  # fmt: skip
    rows = table.orderBy("step", "name").select("step", "name", "value", f.col("time").cast("double").alias("at"))
    found = rows.collect()
    assert len(found) == 2 * (FAN_IN + 2)
    assert math.isnan(found[0].value)
    assert [(row.name, row.value, row.at) for row in found[-2:]] == [
        ("loss", 1e300, 1_700_000_000.5 + FAN_IN + 1), ("🎉", (FAN_IN + 1) / 4, 1_700_000_000.5 + FAN_IN + 1),
    ]  # fmt: skip
