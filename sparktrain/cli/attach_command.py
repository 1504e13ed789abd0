"""`sparktrain attach DIR`: waits for a run that another process has started, and ends as its call would have."""

from typing import TYPE_CHECKING

from sparktrain.cli import common
from sparktrain.cli.common import TRAINING_CODES
from sparktrain.cli.flags import Debug, Directory, with_help
from sparktrain.cli.inspect_commands import AsJson

if TYPE_CHECKING:
    from sparktrain.cli.common import CommandOutcome

EXAMPLES = """\
A run that a notebook has submitted, until its end:
  sparktrain attach hdfs:///exp/big
"""


@with_help(EXAMPLES, TRAINING_CODES)
def attach(directory: Directory, as_json: AsJson = False, debug: Debug = False) -> int:
    """Show a run that another process has started until it has ended, and its result. Ctrl-C leaves it running."""
    return common.watch_to_end(lambda: attached_outcome(directory, quiet=as_json), as_json=as_json, debug=debug)


def attached_outcome(directory: str, *, quiet: bool) -> "CommandOutcome":
    """The end of the run in a directory. Blocks until it has ended. Raises as `RunHandle.result`."""
    from sparktrain.cli.common import CommandOutcome
    from sparktrain.display.live import choose_display
    from sparktrain.display.summary import Lines, summary_table
    from sparktrain.driver.clustered.run_handle import attached

    run = attached(directory)
    display = choose_display(quiet=quiet)
    display.start()
    try:
        ended = run.wait(display)
    finally:
        display.close()
    if run.is_gang:
        return CommandOutcome(ended, Lines(run.run_end(ended).lines()))
    return CommandOutcome(ended, summary_table(ended))
