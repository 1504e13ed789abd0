"""The errors that Spark has for failed tasks."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparktrain.base.ids import SparkTask
from sparktrain.cluster.task_failures import task_failures


def fail(batches: Any) -> Any:
    from pyspark import TaskContext

    yield from batches
    raise ValueError(f"task {TaskContext.get().taskAttemptId()} of stage {TaskContext.get().stageId()}")


def test_each_failed_task_is_listed_by_its_id(spark: SparkSession) -> None:
    with pytest.raises(PySparkException):
        spark.range(0, 2, 1, 2).mapInArrow(fail, "id long").collect()

    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
    stage = max(each for job in jobs if job is not None for each in job.stageIds)
    words = task_failures(spark)
    assert words is not None
    errors = words([SparkTask(stage, 0), SparkTask(10**6, 0)])
    assert errors
    assert [task for task, text in errors.items() if f"ValueError: task {task} of stage {stage}" not in text] == []


def test_a_stopped_session_and_one_of_spark_connect_list_no_errors() -> None:
    gone: Any = SimpleNamespace(_sc=SimpleNamespace(_jvm=None))
    connect: Any = SimpleNamespace()
    words = task_failures(gone)
    assert words is not None
    assert words([SparkTask(1, 1)]) == {}
    assert task_failures(connect) is None
