"""A cluster of two executor processes for the whole ring."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.by_value import by_value as by_value
from tests.support.local_spark import LOCAL_CLUSTER, spark_session


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(LOCAL_CLUSTER, tmp_path_factory.mktemp("spark")) as session:
        session.range(0, 2, 1, 2).count()  # wait until both executors have registered: no test measures their start
        yield session


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"
