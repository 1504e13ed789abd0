"""A cluster of two executor processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.local_spark import spark_session

IDLE_S = 20.0
"""After it the agents of the pool end: they hold no memory for files that do not use them."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two executors with one slot each."""
    with spark_session("local-cluster[2,1,1024]", tmp_path_factory.mktemp("spark")) as session:
        session.range(0, 2, 1, 2).count()
        yield session


@pytest.fixture(scope="package")
def pool() -> Iterator[st.Pool]:
    """Two warm agents on this machine, for all files of gangs of TensorFlow and Horovod."""
    frameworks = ["tensorflow", "keras", "horovod.tensorflow"]
    with st.pool(st.local(slots=2), preload=frameworks, idle_timeout=IDLE_S) as opened:
        yield opened
