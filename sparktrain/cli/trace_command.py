"""The command that writes the newest steps of a gang as a trace. Wiring alone."""

import json
from typing import Annotated

import typer

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import Debug, Directory, option, with_help
from sparktrain.config.panels import OUTPUT, SHOWN
from sparktrain.config.param_values import shown
from sparktrain.errors import SpecError
from sparktrain.runs.local_output import output_path, replace_file

TRACE_EXAMPLES = """\
The last 50 steps of all members of a gang, to open at https://ui.perfetto.dev:
  sparktrain trace hdfs:///runs/big --last 50 -o trace.json
Those of one trial in a sweep of gangs:
  sparktrain trace /shared/runs/mnist 3
"""
LAST = 100


@with_help(TRACE_EXAMPLES)
def trace(
    directory: Directory,
    trial: Annotated[int | None, typer.Argument(metavar="TRIAL", help="The trial (default: the only one).")] = None,
    *,
    last: Annotated[int, option(SHOWN, "N", "The last N steps, of 255 at most (default: 100).")] = LAST,
    output: Annotated[
        str, option(OUTPUT, "FILE", "Write this local file (default: trace.json).", "--output", "-o")
    ] = "trace.json",
    debug: Debug = False,
) -> int:
    """Write the last steps of a gang as a trace for Perfetto, with the clocks of its hosts aligned."""
    return common.look(lambda out: write_trace(out, directory, trial, last, output), as_json=False, debug=debug)


def write_trace(out: Output, directory: str, trial: int | None, last: int, output: str) -> int:
    """Write the trace of one trial to a local file. Blocks on the store. Raises SpecError."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
    from sparktrain.runs.logs import wanted_of
    from sparktrain.runs.steps.step_trace import step_trace
    from sparktrain.runs.watcher import Observer

    if last < 1:
        raise SpecError(f"--last ({shown(last)}) must be at least 1: it is a number of steps")
    target = output_path(output, "-o")
    place = run_in(directory, LOOK_TIMEOUT_S)
    view = Observer(place, SystemClock()).look()
    chosen = wanted_of(view, trial, None, None, every=False).trial
    if chosen is None:
        raise SpecError(f"run {view.name} has {len(view.results)} trials: name the one to trace")
    content = step_trace(place, view, chosen, last)
    replace_file(target, json.dumps(content).encode(), "-o")
    out.write(f"{target}: open it at https://ui.perfetto.dev\n".encode())
    return 0
