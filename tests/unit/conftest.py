"""Settings of the innermost ring."""

import os
import time
from collections.abc import Iterator

import pytest

from sparktrain.base.clock import SystemClock


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """No test of one process can see whether bytes have reached the disk: waiting for the disk is most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(params=[-200_000.0, 200_000.0], ids=["behind", "ahead"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock of this process differs by two days from that of its stores and its file system."""
    monkeypatch.setattr(SystemClock, "wall", lambda clock: time.time() + request.param)
