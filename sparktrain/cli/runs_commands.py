"""The commands about whole runs: list, delete and compare them. Wiring alone."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import Debug, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.config.panels import DELETED, SHOWN
from sparktrain.config.store_address import DEFAULT_DIR
from sparktrain.errors import SpecError
from sparktrain.runs.listing.run_states import STATES

LS_EXAMPLES = """\
All runs in a directory, the newest first, with their sizes:
  sparktrain ls hdfs:///exp
Those that still run, without listing all files for their sizes:
  sparktrain ls /shared/runs --state running --no-size
"""
RM_EXAMPLES = """\
Delete a run, after a question:
  sparktrain rm hdfs:///exp/mnist
Delete two runs at once in a script:
  sparktrain rm /shared/runs/first /shared/runs/second --yes
"""
DIFF_EXAMPLES = """\
Why two runs have other results:
  sparktrain diff hdfs:///exp/mnist hdfs:///exp/mnist-2
"""


@with_help(LS_EXAMPLES)
def ls(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A directory of runs, or a run directory.", show_default=True)
    ] = DEFAULT_DIR,
    sort: Annotated[
        str, option(SHOWN, "started|name|best|size", "Order of the runs (default: started, the newest first).")
    ] = "started",
    state: Annotated[
        list[str] | None,
        option(SHOWN, "STATE", f"Only runs in this state: {', '.join(STATES)}. Repeatable."),
    ] = None,
    no_size: Annotated[bool, option(SHOWN, "", "Do not list the files of each run for its size.", "--no-size")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """List the runs of a directory: state, trials, best value, age, size and owner."""
    return common.look(
        lambda out: list_directory(out, directory, sort, state or [], not no_size), as_json=as_json, debug=debug
    )


def list_directory(out: Output, directory: str, sort: str, states: Sequence[str], sizes: bool) -> int:
    """Show the runs of a directory. Blocks on the store."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.display.status_json import runs_json
    from sparktrain.runs.listing.run_folder import runs_of
    from sparktrain.runs.listing.run_list import list_runs, sorted_runs

    for state in states:
        if state not in STATES:
            raise SpecError(f"--state ({state}) must be one of {', '.join(STATES)}")
    sorted_runs([], sort)  # a wrong order is refused before anything is read
    clock = SystemClock()
    contents = runs_of(directory, clock)
    all_runs = list_runs(contents.places, clock, sizes=sizes, views=out.as_json)
    chosen_runs = [run for run in all_runs if not states or run.row.state in states or not run.row.readable]
    runs = sorted_runs(chosen_runs, sort)
    if out.as_json:
        out.document(runs_json(runs, contents.left_out))
    else:
        from sparktrain.display.runs_table import RunsTable  # rich, for people alone

        out.show(RunsTable(runs, clock.wall(), contents.left_out))
    return 0


@with_help(RM_EXAMPLES)
def rm(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="The run directories to delete.")],
    yes: Annotated[bool, option(DELETED, "", "Delete without a question.", "--yes", "-y")] = False,
    dry_run: Annotated[bool, option(DELETED, "", "Delete nothing; show what would be deleted.", "--dry-run")] = False,
    older_than: Annotated[
        str,
        option(DELETED, "TIME", "A driver that does not answer must have been silent for this long (default: 1h)."),
    ] = "1h",
    force: Annotated[bool, option(DELETED, "", "Delete runs that cannot be read, too.", "--force")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Delete whole runs, with checkpoints, logs and results. Refused while a driver owns one of them."""
    return common.look(
        lambda out: remove_runs(out, directories, older_than, force, asks=not yes, dry=dry_run),
        as_json=as_json,
        debug=debug,
    )


def remove_runs(out: Output, directories: Sequence[str], older_than: str, force: bool, *, asks: bool, dry: bool) -> int:
    """Delete runs. With `asks`, ask first. Blocks on the stores and on the user."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.config.quantities import seconds
    from sparktrain.display.summary import Lines
    from sparktrain.runs.locate import run_in
    from sparktrain.runs.upkeep.run_removal import VERSION, Remover
    from sparktrain.runs.watcher import this_process

    silent_s = seconds(older_than, "--older-than") or 0.0
    clock = SystemClock()
    found_places = (run_in(directory, without_overview=True) for directory in directories)
    places = {place.where: place for place in found_places}
    removers = [Remover(place, silent_s, clock, force=force) for place in places.values()]
    removals = [remover.find() for remover in removers]
    if not dry and asks and not _agreed([removal.line() for removal in removals]):
        typer.echo("nothing was deleted", err=True)
        return 0
    results = removals if dry else [remover.remove(this_process(clock, "sparktrain rm")) for remover in removers]
    if out.as_json:
        out.document({"version": VERSION, "dry_run": dry, "runs": [removal.document() for removal in results]})
    else:
        out.show(Lines([removal.line() for removal in results]))
    return 0


def _agreed(lines: Sequence[str]) -> bool:
    """Ask whether to delete what `lines` describe. Raises SpecError where no user can answer."""
    if not sys.stdin.isatty():
        raise SpecError("sparktrain rm asks before it deletes, and stdin is no terminal: pass --yes")
    for line in lines:
        typer.echo(line, err=True)
    target = "this run" if len(lines) == 1 else f"these {len(lines)} runs"
    try:
        return typer.confirm(f"Delete {target} for good?", err=True)
    except typer.Abort as error:
        raise KeyboardInterrupt("nothing was deleted") from error


@with_help(DIFF_EXAMPLES)
def diff(
    one: Annotated[str, typer.Argument(metavar="DIR", help="The run directory of the first run.")],
    other: Annotated[str, typer.Argument(metavar="DIR", help="That of the second run.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show what is different between two runs: code, space, data, options and versions."""
    return common.look(lambda out: show_differences(out, one, other), as_json=as_json, debug=debug)


def show_differences(out: Output, one: str, other: str) -> int:
    """Compare two runs. Blocks on their stores."""
    from sparktrain.display.summary import Lines
    from sparktrain.runs.locate import run_in
    from sparktrain.runs.run_differences import compare_runs, read_sources

    differences = compare_runs(read_sources(run_in(one)), read_sources(run_in(other)))
    if out.as_json:
        out.document(differences.document())
    else:
        out.show(Lines(differences.lines()))
    return 0
