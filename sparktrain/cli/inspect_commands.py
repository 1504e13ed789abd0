"""The commands that inspect a run directory from any host that reaches its store, without Spark. Wiring alone."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sparktrain.cli import common
from sparktrain.cli.common import LOOKING_CODES, Output
from sparktrain.cli.flags import Debug, Directory, option, with_help
from sparktrain.config.panels import OUTPUT, SHOWN
from sparktrain.config.param_values import shown
from sparktrain.config.store_address import DEFAULT_DIR
from sparktrain.errors import SpecError
from sparktrain.runs.local_output import output_path, replace_file

TRACE_EXAMPLES = """\
The last 50 steps of all members of a gang, to open at https://ui.perfetto.dev:
  sparktrain trace hdfs:///runs/big --last 50 -o trace.json
Those of one trial in a sweep of gangs:
  sparktrain trace /shared/runs/mnist 3
"""
LAST = 100

if TYPE_CHECKING:
    from sparktrain.base.clock import Clock
    from sparktrain.runs.listing.run_folder import FolderContents
    from sparktrain.runs.locate import RunLocation
    from sparktrain.runs.logs import LogFile, LogSelection

STATUS_EXAMPLES = """\
The status of a run, from any host that reaches its directory:
  sparktrain status hdfs:///runs/mnist
The same at each change, until the run has ended:
  sparktrain status /shared/runs/mnist --watch
All runs in a directory, and in the default directory:
  sparktrain status /shared/runs
  sparktrain status
"""
LOGS_EXAMPLES = """\
What trial 3 prints, live, from its last 20 lines:
  sparktrain logs /shared/runs/mnist 3 --follow --tail 20
The log of each generation and member of a run of one gang:
  sparktrain logs /shared/runs/big --all
"""
BEST_EXAMPLES = """\
The three trials with the smallest loss, whatever the run's own metric is:
  sparktrain best /shared/runs/mnist --metric loss --top 3
"""


AsJson = Annotated[bool, option(OUTPUT, "", "Print one JSON object, for programs.", "--json")]


@with_help(STATUS_EXAMPLES)
def status(
    directory: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A run directory, or a directory of several runs.", show_default=True),
    ] = DEFAULT_DIR,
    watch: Annotated[bool, option(SHOWN, "", "Show it until the run has ended.", "--watch", "-w")] = False,
    every: Annotated[str, option(SHOWN, "TIME", "Time between two looks of --watch (default: 2s).")] = "2s",
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show the status of a run: its driver, its trials, the best one, and how to resume it.

    With --watch and --json, there is one JSON object on a line for each change.
    """
    return common.look(lambda out: show_status(out, directory, every if watch else None), as_json=as_json, debug=debug)


def show_status(out: Output, directory: str, every: str | None) -> int:
    """Show one run, or the table of several. Blocks on the store, and with `every` until the run has ended."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.config.quantities import seconds
    from sparktrain.runs.listing.run_folder import RunFolder
    from sparktrain.runs.locate import RunLocation

    every_s = seconds(every, "every")
    clock = SystemClock()
    folder = RunFolder.of(directory, clock)
    if isinstance(folder, RunLocation):
        _show_run(out, folder, every_s)
        return 0
    contents = folder.look()
    if every_s is not None:
        number = len(contents.places)
        raise SpecError(f"--watch shows one run, and {directory} holds {number}: pass the directory of one")
    _show_runs(out, contents, clock)
    return 0


def _show_run(out: Output, place: "RunLocation", every_s: float | None) -> None:
    from sparktrain.base.clock import SystemClock
    from sparktrain.display.status_json import run_json
    from sparktrain.display.status_view import StatusScreen
    from sparktrain.display.watch import Changes, Documents, watch, watch_live
    from sparktrain.runs.trial_result import model_of
    from sparktrain.runs.watcher import Observer

    clock = SystemClock()
    observer = Observer(place, clock)
    if every_s is None:
        view = observer.look()
    elif out.as_json:
        watch(observer.look, Documents(lambda value: out.document(value, lines=True)).show, every_s)
        return
    elif out.terminal:
        view = watch_live(observer.look, sys.stdout, clock, every_s)
    else:
        view = watch(observer.look, Changes(lambda line: out.write(f"{line}\n".encode())).show, every_s)
    if out.as_json:
        out.document(run_json(view))
    else:
        model = model_of(place.store, place.layout, view.results[0]) if view.kind == "run" and view.results else None
        out.show(StatusScreen(view, clock.wall(), model))


def _show_runs(out: Output, contents: "FolderContents", clock: "Clock") -> None:
    from sparktrain.display.runs_table import RunsTable
    from sparktrain.display.status_json import runs_json
    from sparktrain.runs.listing.run_list import RunOrder, list_runs, sorted_runs

    runs = list_runs(contents.places, clock, views=out.as_json)
    if out.as_json:
        out.document(runs_json(runs, contents.left_out))
    else:
        out.show(RunsTable(sorted_runs(runs, RunOrder.STARTED), clock.wall(), contents.left_out))


@with_help(LOGS_EXAMPLES)
def logs(
    directory: Directory,
    trial: Annotated[int | None, typer.Argument(metavar="TRIAL", help="The trial (default: the only one).")] = None,
    *,
    rank: Annotated[int | None, option(SHOWN, "N", "The member (default: the chief, rank 0).")] = None,
    generation: Annotated[int | None, option(SHOWN, "N", "The generation (default: the newest).")] = None,
    follow: Annotated[bool, option(SHOWN, "", "Follow the log until the trial has ended.", "--follow", "-f")] = False,
    tail: Annotated[int | None, option(SHOWN, "N", "Start with the last N lines.")] = None,
    every: Annotated[bool, option(SHOWN, "", "Every generation and rank that is not named.", "--all")] = False,
    as_json: Annotated[bool, option(OUTPUT, "", "List the log files as a JSON object.", "--json")] = False,
    debug: Debug = False,
) -> int:
    """Print the log of a trial; with several trials and none named, list their logs."""
    request = LogsRequest(
        directory=directory, trial=trial, rank=rank, generation=generation, follow=follow, tail=tail, all=every
    )
    return common.look(lambda out: show_logs(out, request), as_json=as_json, debug=debug)


@dataclass(frozen=True, kw_only=True)
class LogsRequest:
    """The options of `sparktrain logs`, not yet checked."""

    directory: str
    trial: int | None = None
    rank: int | None = None
    generation: int | None = None
    follow: bool = False
    tail: int | None = None
    all: bool = False

    def check(self, as_json: bool) -> None:
        """Raises SpecError for options that exclude each other."""
        if self.follow and (self.all or as_json):
            raise SpecError(f"--follow follows one log, and {'--json lists' if as_json else '--all prints'} several")
        if self.tail is not None and self.tail < 1:
            raise SpecError(f"--tail ({self.tail}) must be at least 1")


def show_logs(out: Output, request: LogsRequest) -> int:
    """Print or list logs. Blocks on the store, and with `follow` until the trial has ended."""
    import msgspec

    from sparktrain.base.clock import SystemClock
    from sparktrain.display.log_table import LogTable, logs_json
    from sparktrain.runs import logs
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
    from sparktrain.runs.watcher import Observer

    request.check(out.as_json)
    place = run_in(request.directory, LOOK_TIMEOUT_S)
    observer = Observer(place, SystemClock())
    view = observer.look()
    selection = logs.wanted_of(view, request.trial, request.generation, request.rank, request.all)
    if selection.trial is not None and request.follow:
        # A trial may print control sequences: a terminal would obey them, and a file gets the bytes as they are.
        clean = logs.TerminalSanitizer() if out.terminal else bytes
        follower = logs.Follower(place, observer.look, selection, request.tail)
        for piece in follower.pieces(common.print_line):
            out.write(clean(piece))
        return 0
    log_files = logs.logs_in(place, selection.trial)
    if out.as_json:
        listed = logs.chosen(log_files, msgspec.structs.replace(selection, all=True))
        out.document(logs_json(place, view, listed))
    elif selection.trial is None and not selection.all:
        out.show(LogTable(view, log_files))
    else:
        if not log_files and logs.printed_nothing(view, selection):
            common.print_line(f"trial {selection.trial} has ended, and printed nothing")
            return 0
        _print_logs(out, place, log_files, selection, request.tail)
    return 0


def _print_logs(
    out: Output, place: "RunLocation", log_files: "list[LogFile]", selection: "LogSelection", tail: int | None
) -> None:
    from sparktrain.runs.logs import TerminalSanitizer, chosen, content, missing

    shown = chosen(log_files, selection)
    if not shown:
        raise missing(log_files, selection)
    for number, log in enumerate(shown):
        clean = TerminalSanitizer() if out.terminal else bytes
        if len(shown) > 1:
            out.write(f"{chr(10) * (number > 0)}==> {log.member} <==\n".encode())
        for piece in content(place.store, log, tail):
            out.write(clean(piece))


@with_help(BEST_EXAMPLES, {**LOOKING_CODES, 3: "no trial has succeeded yet"})
def best(
    directory: Directory,
    metric: Annotated[str | None, option(SHOWN, "NAME", "Compare trials by this (default: the run's metric).")] = None,
    mode: Annotated[
        str | None, option(SHOWN, "max|min", "Which end of it is best (default: that of the run, or by its name).")
    ] = None,
    top: Annotated[int, option(SHOWN, "N", "Show the best N trials (default: 1).")] = 1,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show the best trial so far: its parameters and metrics, and where its model, checkpoint and log are."""
    return common.look(lambda out: show_best(out, directory, metric, mode, top), as_json=as_json, debug=debug)


def show_best(out: Output, directory: str, metric: str | None, mode: str | None, top: int) -> int:
    """Show the best trials; the exit code is 3 when no trial has succeeded yet. Blocks on the store."""
    from sparktrain.base.clock import SystemClock
    from sparktrain.display.best import best_in
    from sparktrain.display.summary import Lines
    from sparktrain.runs.locate import LOOK_TIMEOUT_S, run_in
    from sparktrain.runs.watcher import Observer

    place = run_in(directory, LOOK_TIMEOUT_S)
    ranking = best_in(place, Observer(place, SystemClock()).look(), metric, mode, top)
    if out.as_json:
        out.document(ranking.document())
    else:
        out.show(Lines(ranking.lines()))
    return 0 if ranking.trials else 3


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
