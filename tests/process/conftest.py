"""A zygote for each test, and the check that no process of it is left."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base import process_tree
from sparktrain.executor.zygote_process import ZygoteProcess
from tests.process.harness import MARK, Bench, marked
from tests.support.by_value import by_value as by_value


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark in the environment of zygotes; no process with it may be left after the test."""
    mark, before = uuid.uuid4().hex, process_tree.children()
    yield mark
    assert not marked(mark)
    assert process_tree.children() <= before


@pytest.fixture
async def zygote(tmp_path: Path, mark: str) -> AsyncIterator[ZygoteProcess]:
    """A zygote without preloaded modules."""
    zygote = ZygoteProcess(tmp_path, env={MARK: mark})
    zygote.start()
    yield zygote
    await zygote.close()
    assert not marked(mark)


@pytest.fixture
def bench(zygote: ZygoteProcess, tmp_path: Path) -> Bench:
    """Runs trials in children of the zygote."""
    return Bench(zygote, tmp_path)


@pytest.fixture(scope="module")
def pool(request: pytest.FixtureRequest) -> Iterator[st.Pool]:
    """The warm agents of a file, which names as AGENTS how many, and what they import: no test measures their start."""
    slots, *preload = request.module.AGENTS
    with st.pool(st.local(slots=slots), preload=preload) as pool:
        yield pool


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as drive:
        chromium = drive.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder of run directories."""
    return tmp_path / "runs"
