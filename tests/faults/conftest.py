"""A cluster of two executor processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.local_spark import spark_session

RING = ["tensorflow", "keras", "horovod.tensorflow"]
"""What all pools of this ring preload: one nursery serves them in turn."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two executors with one slot each."""
    with spark_session("local-cluster[2,1,1024]", tmp_path_factory.mktemp("spark")) as session:
        session.range(0, 2, 1, 2).count()
        yield session


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two warm agents on this machine."""
    with st.pool(st.local(slots=2), preload=RING) as opened:
        yield opened


@pytest.fixture(scope="module")
def three() -> Iterator[st.Pool]:
    """Three warm agents on this machine."""
    with st.pool(st.local(slots=3), preload=RING) as opened:
        yield opened
