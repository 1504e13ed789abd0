"""Processes that serve pages: what their parent notices of them."""

import logging

import msgspec
import pytest

from sparktrain.views.webserve.server_process import ServerProcess, listening_on
from tests.support.processes import wait_until


class Broken(ServerProcess):
    """A process that ends at once."""

    module = "sparktrain.views.webserve.no_such_module"
    subject = "the broken page"


class Nothing(msgspec.Struct):
    """No settings."""


@pytest.mark.parametrize("reads_lines", [False, True])
def test_a_process_that_ends_by_itself_is_reported_with_its_last_line(
    reads_lines: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "sparktrain"),
        listening_on("127.0.0.1", 0, "port") as listening,
        Broken(Nothing(), listening, "localhost", reads_lines) as served,
    ):
        served.wait()
        wait_until(lambda: bool(caplog.messages), 10.0, "the end is reported")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the broken page has ended, with exit code 1: ")
    assert caplog.messages[0].endswith("No module named sparktrain.views.webserve.no_such_module")
