"""Tasks of real Spark that wait for the results of a member: retries, early ends, and workers that are used again."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from sparktrain.cluster.dataframes.answered_feed import infer_rdd_task
from sparktrain.config.store_address import StoreAddress
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.feed_messages import FeedDirectory
from tests.support.answers import AnsweringMember

PARTITIONS, ROWS = 4, 1000
Infer = Callable[[Iterator[Any]], Iterator[Any]]


@pytest.fixture
def infer(tmp_path: Path) -> Iterator[Infer]:
    """The task of one member, which answers `(partition, n, ...)` with n squared."""
    member = AnsweringMember(issue("spark"))
    directory = FeedDirectory(StoreAddress(str(tmp_path)), "feeds/input")
    yield partial(infer_rdd_task, ticket=member.ticket(), directory=directory)
    member.close()


def numbers(spark: SparkSession) -> Any:
    """An RDD of `(partition, n)`, n from 0 in each of its partitions."""

    def rows(partition: int, _: Iterator[Any]) -> Iterator[tuple[int, int]]:
        return ((partition, number) for number in range(ROWS))

    return spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS).mapPartitionsWithIndex(rows)


@pytest.mark.all(
    case="a retried task gets the results of its own rows",
    covered_by="`spark/test_tfcluster`: results of rows; `process/test_answered_feeds`: a killed attempt",
)
def test_a_retried_task_gets_the_results_of_its_own_rows(spark: SparkSession, infer: Infer) -> None:
    """The first attempt of one partition ends after some results: none of them reaches another task."""

    def breaking(results: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        for number, result in enumerate(results):
            if context.partitionId() == 1 and context.attemptNumber() == 0 and number == 600:
                raise RuntimeError("the first attempt ends")
            yield result

    results = numbers(spark).mapPartitions(infer).mapPartitions(breaking).glom().collect()
    assert results == [[number**2 for number in range(ROWS)]] * PARTITIONS


@pytest.mark.all(
    case="an early end", covered_by="`spark/test_tfcluster`: results of rows; `process/test_answered_feeds`"
)
def test_an_early_end_leaves_python_workers_that_can_be_used(spark: SparkSession, infer: Infer) -> None:
    rdd = numbers(spark)
    for _ in range(3):
        assert rdd.mapPartitions(infer).take(5) == [0, 1, 4, 9, 16]
    assert rdd.mapPartitions(infer).sum() == PARTITIONS * sum(number**2 for number in range(ROWS))


@pytest.mark.all(
    case="two RDDs of results side by side",
    covered_by="`spark/test_tfcluster`: results of rows; `process/test_answered_feeds`",
)
def test_results_may_be_asked_for_side_by_side(spark: SparkSession, infer: Infer) -> None:
    """One task takes results of two exchanges with the same member in turn."""
    rdd = numbers(spark)
    both = rdd.mapPartitions(infer).zip(rdd.mapPartitions(infer))
    assert both.filter(lambda pair: pair[0] != pair[1]).count() == 0
    assert both.count() == PARTITIONS * ROWS
