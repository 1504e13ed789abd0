"""`sparktrain board DIR`: TensorBoard over a run directory. Wiring alone."""

from typing import TYPE_CHECKING, Annotated

from sparktrain.cli import common
from sparktrain.cli.common import LOOKING_CODES, Output
from sparktrain.cli.flags import Debug, Directory, option, with_help
from sparktrain.config.panels import OUTPUT, SERVED

if TYPE_CHECKING:
    from sparktrain.views.webserve.server_process import ServerProcess

EXAMPLES = """\
TensorBoard of a run, in any store, for a browser on this machine:
  sparktrain board hdfs:///runs/mnist
For browsers on other machines, on a port of your choice:
  sparktrain board sparktrain-runs/mnist --host 0.0.0.0 --port 6006
"""
Host = Annotated[str, option(SERVED, "ADDRESS", "The address to listen on (default: 127.0.0.1; all: 0.0.0.0).")]
AsJson = Annotated[bool, option(OUTPUT, "", "Print the URL in a JSON object, for programs.", "--json")]


@with_help(EXAMPLES, {**LOOKING_CODES, 1: "TensorBoard has ended by itself"})
def board(
    directory: Directory,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, option(SERVED, "PORT", "The port (default: that of $TENSORBOARD_PORT, or any free one).")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Serve TensorBoard over the reports and event files of a run, which may still grow, until Ctrl-C.

    Prints the URL, which has a token: without it nothing is shown.
    """
    return common.look(lambda out: serve(out, directory, host, port), as_json=as_json, debug=debug)


def serve(out: Output, directory: str, host: str, port: int | None) -> int:
    """Print the URL and serve. Blocks until TensorBoard ends: 1. Raises UserError, and KeyboardInterrupt by Ctrl-C."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.runs.locate import run_in
    from sparktrain.views.board.board import Board
    from sparktrain.views.board.board_feed import BoardFeed
    from sparktrain.views.webserve.server_process import host_in_links

    place = run_in(directory)
    shown = host_in_links(host)
    feed = BoardFeed(place, SystemClock())
    with Board.start(place.store, place.layout.path, bind=host, host=shown, port=port, feed=feed.follow) as process:
        return wait_for(process, "TensorBoard", out)


def wait_for(process: "ServerProcess", name: str, out: Output) -> int:
    """Print the URL, and wait until the process ends by itself: 1. Blocks; raises KeyboardInterrupt by Ctrl-C."""
    if out.as_json:
        out.document({"url": process.url}, lines=True)
    else:
        out.write(f"{name}: {process.url}\n".encode())
        common.print_line("Ctrl-C ends it")
    process.wait()
    return 1
