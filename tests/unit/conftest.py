"""Settings of the innermost ring."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """No test of one process can see whether bytes have reached the disk: waiting for the disk is most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
