"""Settings of all rings."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from sparktrain.base import deferred_wrappers

RINGS = [f"tests.{each.name}" for each in Path(__file__).parent.iterdir() if (each / "__init__.py").exists()]
pytest.register_assert_rewrite("sparktrain.testing", *RINGS)  # comparisons in helpers are shown as those in tests

settings.register_profile("sparktrain", deadline=None)  # the time of an example depends on the machine
settings.register_profile("quick", deadline=None, max_examples=25)  # a quarter of the examples: make test-unit
settings.load_profile("sparktrain")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise every process compiles what it imports
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests interrupt inherit it

DAEMONS = "tests/hadoop/"
"""The ring that mostly waits for daemons."""
READERS = (
    "tests/architecture/",
    *(f"tests/unit/test_{name}.py" for name in ("doc_facts", "docs", "public_names")),
)
"""Tests that parse all sources, which takes most of their time: one worker does it for all of them."""
SESSION = "tests/spark/"
"""The ring that shares a session of Spark: three JVMs, and Python workers that have loaded TensorFlow."""
OWN_SESSIONS = tuple(
    f"{SESSION}test_{name}.py" for name in ("command_line", "connect", "gpus", "missing", "notebook", "submit")
)
"""Its files that use none of that."""
FORKED = tuple(
    f"tests/training/test_{name}.py"
    for name in (
        "broken_rings", "horovod_programs", "local_steps", "memory_saver", "out_of_step", "programs_gang", "rings",
        "staged",
    )
)  # fmt: skip
"""Tests of gangs that are forked from one process, which has loaded TensorFlow and Horovod for all of them."""
CLUSTERS = ("tests/training/test_member_shares.py", "tests/training/test_strategy.py")
"""Tests of TensorFlow's strategies, forked from another process that has loaded TensorFlow alone."""
GANGS = (
    "tests/examples/test_gangs.py",
    *(
        f"tests/training/test_{name}.py"
        for name in ("horovod_elastic", "local_gang", "local_gangs", "own_strategies", "ps_gangs", "slow_members")
    ),
)
"""Tests of gangs on the agents of `gang_pool`, which load TensorFlow once for all of them."""
LOSSES = tuple(
    f"tests/faults/test_{name}.py"
    for name in (
        "draining", "healing_fits", "loops", "ring_takeover", "same_bits", "smaller_rings", "standbys", "training"
    )
)  # fmt: skip
"""Tests of losses: the agents of their pools are forked from one nursery, which has loaded TensorFlow and Horovod."""
TOGETHER = (READERS, FORKED, CLUSTERS, GANGS, LOSSES)
IDLE_S = 20.0
"""After it the agents of a pool of tests end: no memory is held for files that do not use them."""
EARLY = ("hadoop", "architecture", "unit", "histories", "contract")
LATE = ("spark", "examples", "faults", "hosts", "training", "torch", "process", "gpu", "kubernetes")
"""Rings in the order in which workers start them. Of the late ones, the longest files come before short ones, so that
all workers end at about the same time. The JVMs of `hosts` start when those of `hadoop` have ended."""
LONG = ("tests/process/test_streams.py",)
"""Files that come first in their ring, for the same reason."""

CPU_TIME = pytest.StashKey[Any]()


class Rings(LoadScopeScheduling):
    """How workers share the tests of `make test`: one worker takes all files that share what is dear to start, such as
    daemons or a session, and the others take a file at a time, as it does too from then on."""

    def _split_scope(self, nodeid: str) -> str:
        for files in TOGETHER:
            if nodeid.startswith(files):
                return files[0]
        if nodeid.startswith(SESSION) and not nodeid.startswith(OWN_SESSIONS):
            return SESSION
        return DAEMONS if nodeid.startswith(DAEMONS) else nodeid.partition("::")[0]


@pytest.fixture(autouse=True)
def _path_of_before() -> Iterator[None]:
    """A command that a test runs in this process puts the folder of its program on the path: later tests must not find
    that program."""
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture(scope="session")
def gang_pool() -> Iterator[Any]:
    """Three warm agents on this machine, for gangs of TensorFlow and Horovod."""
    import sparktrain as st

    frameworks = ["tensorflow", "keras", "horovod.tensorflow"]
    with st.pool(st.local(slots=3), preload=frameworks, idle_timeout=IDLE_S) as pool:
        yield pool


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Rings:
    config.option.loadscopereorder = False
    return Rings(config, log)


gc.disable()  # until all modules are imported; see pytest_collection_finish
deferred_wrappers.defer()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector skip everything that is imported. A report has the processor time from here on."""
    gc.freeze()
    gc.enable()
    if session.config.option.xmlpath:
        from tests.support.cpu_time import CpuTime

        session.config.stash[CPU_TIME] = CpuTime()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: "pytest.Item | None") -> Iterator[None]:
    """Add the processor time of the file to the report: see scripts/cpu_seconds.py."""
    yield
    if CPU_TIME in item.config.stash and (nextitem is None or nextitem.path != item.path):
        item.user_properties.append(("cpu_s", round(item.config.stash[CPU_TIME].lap(), 2)))


def pytest_collection_modifyitems(items: "list[pytest.Item]") -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        rings = (*EARLY, *LATE)
        items.sort(key=lambda item: (rings.index(item.nodeid.split("/")[1]), not item.nodeid.startswith(LONG)))


@pytest.fixture
def own_imports() -> Iterator[None]:
    """Remove what a test puts on `sys.path`, and the modules of its own that it imports, by their names."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("bad_", "ship_")):
            del sys.modules[name]
