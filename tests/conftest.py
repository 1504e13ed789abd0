"""Settings of all rings."""

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

RINGS = [f"tests.{each.name}" for each in Path(__file__).parent.iterdir() if (each / "__init__.py").exists()]
pytest.register_assert_rewrite("sparktrain.testing", *RINGS)  # what helpers compare is shown like what tests compare

settings.register_profile("sparktrain", deadline=None)  # an example's time is the machine's matter, not the product's
settings.load_profile("sparktrain")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every process of the tests would compile all that it imports
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell: programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)  # would not hear of it

DAEMONS = "tests/hadoop/"
"""The ring that waits for daemons more than it works."""


class Rings(LoadScopeScheduling):
    """How two workers share the tests of `make test`: one starts with the ring of daemons, which tests of several files
    share, and the other with the innermost ring; a file at a time from then on."""

    def _split_scope(self, nodeid: str) -> str:
        return DAEMONS if nodeid.startswith(DAEMONS) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Rings:
    config.option.loadscopereorder = False
    return Rings(config, log)


gc.disable()  # until all is imported, which stays; see pytest_collection_finish


def pytest_collection_finish() -> None:
    """Have collections of garbage look only at what tests make, and not at all that is imported."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: "list[pytest.Item]") -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: not item.nodeid.startswith(DAEMONS))
