"""The commands that look after a run directory, from any host that reaches its store, without Spark. Wiring alone."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sparktrain import command
from sparktrain.cli.options import OUTPUT, SHOWN, Command, Debug, option
from sparktrain.command import LOOKING_CODES, Output
from sparktrain.errors import SpecError, UserError

if TYPE_CHECKING:
    from sparktrain.driver.places import Place

STATUS_EXAMPLES = """\
How a run stands, from any host that reaches its directory:
  sparktrain status hdfs:///runs/mnist
The same as it changes, until the run has ended:
  sparktrain status /shared/runs/mnist --watch
All runs in a directory:
  sparktrain status /shared/runs
"""


class LookingCommand(Command):
    """Its help."""

    codes = LOOKING_CODES


class StatusCommand(LookingCommand):
    """Its help."""

    examples = STATUS_EXAMPLES


AsJson = Annotated[bool, option(OUTPUT, "", "Print one JSON object, for programs.", "--json")]


def status(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A run directory, or a directory of several runs.")],
    watch: Annotated[bool, option(SHOWN, "", "Go on showing it until the run has ended.", "--watch", "-w")] = False,
    every: Annotated[str, option(SHOWN, "TIME", "How often --watch looks (default: 2s).")] = "2s",
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Tell how a run stands: who is on it, what its trials do, which is best, and how to resume it.

    With --watch and --json, there is one JSON object on a line for each change.
    """
    return command.look(lambda out: show_status(out, directory, every if watch else None), as_json=as_json, debug=debug)


def show_status(out: Output, directory: str, every: str | None) -> int:
    """One run, or the table of several. Blocks on the store, and with `every` until the run has ended."""
    from sparktrain.driver.places import LOOK_TIMEOUT_S, runs_in
    from sparktrain.spec.quantities import seconds

    every_s = seconds(every, "every")
    places, alone = runs_in(directory, LOOK_TIMEOUT_S)
    if alone:
        _show_run(out, places[0], every_s)
    elif every_s is None:
        _show_runs(out, places)
    else:
        raise SpecError(f"--watch shows one run, and {directory} holds {len(places)}: pass the directory of one")
    return 0


def _show_run(out: Output, place: "Place", every_s: float | None) -> None:
    from sparktrain.clock import SystemClock
    from sparktrain.driver.observer import Observer
    from sparktrain.driver.run import model_of
    from sparktrain.driver.status_report import run_json
    from sparktrain.driver.status_screen import StatusScreen
    from sparktrain.driver.watching import Changes, Documents, watch, watch_live

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


def _show_runs(out: Output, places: "list[Place]") -> None:
    from sparktrain.clock import SystemClock
    from sparktrain.driver.observer import Observer
    from sparktrain.driver.status_report import runs_json
    from sparktrain.driver.status_screen import RunsTable

    views, problems, clock = [], [], SystemClock()
    for place in places:
        try:
            views.append(Observer(place, clock).look())
        except UserError as error:  # one run that cannot be read hides no other
            problems.append((place.layout.path, str(error)))
    if out.as_json:
        out.document(runs_json(views, problems))
    else:
        out.show(RunsTable(views, problems, clock.wall()))
