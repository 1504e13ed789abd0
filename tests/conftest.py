"""Settings of all rings."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

RINGS = [f"tests.{each.name}" for each in Path(__file__).parent.iterdir() if (each / "__init__.py").exists()]
pytest.register_assert_rewrite("sparktrain.testing", *RINGS)  # what helpers compare is shown like what tests compare

settings.register_profile("sparktrain", deadline=None)  # an example's time is the machine's matter, not the product's
settings.load_profile("sparktrain")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell: programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)  # would not hear of it

DAEMONS = "hadoop"
"""The ring that waits for daemons more than it works."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: "list[pytest.Item]") -> None:
    """Where two workers share the rings (`make test`), one begins with the real daemons, which tests of several files
    share, and the other takes one file after the other of all other rings; then both do."""
    folder = Path(__file__).parent / DAEMONS
    for item in items:
        group = DAEMONS if folder in item.path.parents else item.path.relative_to(folder.parent).as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: folder not in item.path.parents)
