"""A real Kubernetes on this machine."""

from collections.abc import Iterator

import pytest

from tests.support.kubernetes import Kubernetes, missing
from tests.support.kubernetes import kubernetes as started


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """Two nodes with two GPUs each, for the whole ring; no test touches its daemons, and each ends its own pods."""
    if reason := missing():
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("kubernetes") / "cluster") as cluster:
        yield cluster
