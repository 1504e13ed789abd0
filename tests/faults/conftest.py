"""A cluster of two executor processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from tests.support.fits import FITS, HOROVOD, Fit
from tests.support.local_spark import spark_session


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
def pool(fit: Fit) -> Iterator[st.Pool]:
    """Two warm agents on this machine, for the kind of `fit`."""
    with st.pool(st.local(slots=2), preload=fit.preload) as opened:
        yield opened


@pytest.fixture(scope="module")
def fit(request: pytest.FixtureRequest) -> Fit:
    """The kind of `fit` that a test runs, where that is one of several."""
    return getattr(request, "param", FITS[HOROVOD])


@pytest.fixture(scope="module")
def three(fit: Fit) -> Iterator[st.Pool]:
    """Three warm agents on this machine, for this kind."""
    with st.pool(st.local(slots=3), preload=fit.preload) as opened:
        yield opened
