"""`sparktrain page DIR`: the live page of a run, or of all runs of a directory. Wiring alone."""

from typing import Annotated

from sparktrain.cli import common
from sparktrain.cli.common import LOOKING_CODES, Output
from sparktrain.cli.flags import Debug, Directory, option, with_help
from sparktrain.config.panels import SERVED
from sparktrain.views.board_command import AsJson, Host, wait_for

EXAMPLES = """\
The page of a run, in any store, for a browser on this machine:
  sparktrain page hdfs:///runs/mnist
The page of all runs in a directory: a table to search, comparisons, and the page of each run:
  sparktrain page hdfs:///runs
For browsers on other machines, on a port of your choice:
  sparktrain page sparktrain-runs/mnist --host 0.0.0.0 --port 8080
"""


@with_help(EXAMPLES, {**LOOKING_CODES, 1: "The page has ended by itself"})
def page(
    directory: Directory,
    host: Host = "127.0.0.1",
    port: Annotated[int, option(SERVED, "PORT", "The port (default: any free one).")] = 0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Serve the live page of a run, or of all runs of a directory, until Ctrl-C: views of reports, logs of trials.

    Prints the URL, which has a token: without it nothing is shown. Only the page of the run's own driver (--page) can
    stop trials.
    """
    return common.look(lambda out: serve(out, directory, host, port), as_json=as_json, debug=debug)


def serve(out: Output, directory: str, host: str, port: int) -> int:
    """Print the URL and serve. Blocks until the page ends: 1. Raises UserError, and KeyboardInterrupt by Ctrl-C."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.config.store_address import STORE_TIMEOUT_S
    from sparktrain.runs.listing.run_folder import RunFolder
    from sparktrain.views.page.live_page import LivePage
    from sparktrain.views.webserve.server_process import host_in_links

    folder = RunFolder.of(directory, SystemClock(), STORE_TIMEOUT_S)
    with LivePage.start(folder.where, bind=host, host=host_in_links(host), port=port) as process:
        return wait_for(process, "page", out)
