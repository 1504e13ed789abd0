"""The command line: `sparktrain sweep TARGET`, `sparktrain run TARGET`, and what their options mean. Wiring alone."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sparktrain import command
from sparktrain.command import EXIT_CODES, Ended, Request
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.search.space import Space

SWEEP_EXAMPLES = """\
Every combination, on this machine:
  sparktrain sweep train.py:train --grid lr=0.1,0.01 --grid dropout=0.4,0.7 \\
      --metric accuracy
Values taken position by position, the smallest loss wins:
  sparktrain sweep train.py:train --zip lr=0.1,0.01 --zip dropout=0.4,0.7 \\
      --metric loss --mode min
What to try from a file, on YARN, the result as JSON for a program:
  sparktrain sweep train.py:train --params sweep.yaml --master yarn \\
      --dir /shared/runs --json > result.json
"""
RUN_EXAMPLES = """\
Four processes train one model, in a ring of Horovod:
  sparktrain run train.py:train --workers 4 --param lr=0.01 --master yarn \\
      --dir /shared/runs --name big
The same without Horovod, on this machine:
  sparktrain run train.py:train --workers 2 --backend tensorflow \\
      --param lr=0.01
"""

app = typer.Typer(
    name="sparktrain",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True)
class SweepRequest(Request):
    """What `sparktrain sweep` was asked for, not yet checked."""

    grid: tuple[str, ...] = ()
    zipped: tuple[str, ...] = ()
    params: str | None = None


@dataclass(frozen=True)
class RunRequest(Request):
    """What `sparktrain run` was asked for, not yet checked."""

    params: tuple[str, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default that of this process; the exit code, see `EXIT_CODES`. Blocks."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return int(app(arguments or ["--help"], prog_name="sparktrain", standalone_mode=False) or 0)
    except Exception as error:
        # Typer has its own copy of click, under a private name: its usage errors are known by what they can do.
        tell = getattr(error, "format_message", None)
        if tell is None:
            raise
        known = next((name for name in ("sweep", "run") if name in arguments[:1]), "")
        return command.fail(f"{tell()}\nsee: {' '.join(['sparktrain', *filter(None, [known]), '--help'])}", 2)


def _version(wanted: bool) -> None:
    if wanted:
        from sparktrain import __version__

        typer.echo(f"sparktrain {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Hyperparameter sweeps and distributed training of deep networks on the Spark cluster that you already have."""


_TRIALS, _GANG, _RUN, _SPARK, _OUTPUT = "What to try", "The gang", "The run", "Spark", "Output"
_FUNCTION = "The function"


def _option(panel: str, metavar: str, told: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=told, rich_help_panel=panel, show_default=False)


class _Command(TyperCommand):
    """Ends its help with examples and exit codes: Typer's own epilog would run their lines together."""

    examples = ""
    codes = "Exit codes"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See base class."""
        super().format_help(ctx, formatter)
        typer.echo(f"\nExamples:\n{indent(self.examples, '  ')}\n{self.codes}:")
        for code, meaning in EXIT_CODES.items():
            typer.echo(f"  {code:>3}  {meaning}")


class _SweepCommand(_Command):
    examples = SWEEP_EXAMPLES


class _RunCommand(_Command):
    examples = RUN_EXAMPLES
    codes = "Exit codes, where the one trial is the run itself"


Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="The training function: FILE.py:FUNCTION, or package.module:function.")
]
Seed = Annotated[int | None, _option(_RUN, "N", "Seed of the run, from which each ctx.seed comes.")]
Dir = Annotated[str | None, _option(_RUN, "PATH", "Where run directories are made (default: sparktrain-runs).")]
Name = Annotated[str | None, _option(_RUN, "NAME", "Of the run and its directory (default: function and time).")]
Timeout = Annotated[str | None, _option(_RUN, "TIME", "Stop the run after so long, as in 90s, 5m, 2h.")]
Preload = Annotated[
    str | None,
    _option(_RUN, "M1,M2", "Modules that are imported before training starts (default: what the function uses)."),
]
Backend = Annotated[
    str | None, _option(_GANG, "NAME", "What connects members: horovod, tensorflow or none (default: horovod).")
]
Master = Annotated[str | None, _option(_SPARK, "URL", "Spark's master (default: two executors on this machine).")]
Gpus = Annotated[int | None, _option(_SPARK, "N", "GPUs for each process that trains (default: 0).")]
PyFiles = Annotated[str | None, _option(_SPARK, "F1,F2", "Python files and archives for the executors.")]
Conf = Annotated[list[str] | None, _option(_SPARK, "KEY=VALUE", "Spark's configuration. Repeatable.")]
AsJson = Annotated[bool, _option(_OUTPUT, "", "Print the result as results.json has it.", "--json")]
Quiet = Annotated[bool, _option(_OUTPUT, "", "Show no progress.", "--quiet", "-q")]
Debug = Annotated[bool, _option(_OUTPUT, "", "Show the traceback of an error.", "--debug")]


@app.command(cls=_SweepCommand)
def sweep(
    target: Target,
    grid: Annotated[
        list[str] | None, _option(_TRIALS, "NAME=V1,V2", "Try every combination of these. Repeatable.", "--grid")
    ] = None,
    zipped: Annotated[
        list[str] | None, _option(_TRIALS, "NAME=V1,V2", "Take these position by position. Repeatable.", "--zip")
    ] = None,
    params: Annotated[
        str | None, _option(_TRIALS, "FILE", "What to try, in YAML, JSON or CSV; options too, but for CSV.")
    ] = None,
    trials: Annotated[int | None, _option(_TRIALS, "N", "Run at most N trials.")] = None,
    metric: Annotated[str | None, _option(_TRIALS, "NAME", "The result's entry that trials are compared by.")] = None,
    mode: Annotated[str | None, _option(_TRIALS, "max|min", "Which end of the metric is best (default: max).")] = None,
    workers_per_trial: Annotated[int | None, _option(_GANG, "N", "Members that train each trial (default: 1).")] = None,
    backend: Backend = None,
    seed: Seed = None,
    dir: Dir = None,
    name: Name = None,
    trial_timeout: Annotated[str | None, _option(_RUN, "TIME", "End a trial after so long, as in 90s, 5m, 2h.")] = None,
    timeout: Timeout = None,
    retries: Annotated[int | None, _option(_RUN, "N", "How often a lost trial is run again (default: 3).")] = None,
    preload: Preload = None,
    master: Master = None,
    agents: Annotated[
        int | None, _option(_SPARK, "N", "Processes that train at a time (default: all slots of the session).")
    ] = None,
    gpus: Gpus = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Call a training function once for each set of parameters, each in a fresh process on a Spark executor.

    Progress is shown on stderr; the table of trials is printed to stdout.
    """
    settings = {
        "metric": metric, "mode": mode, "trials": trials, "seed": seed, "dir": dir, "name": name, "retries": retries,
        "trial_timeout": trial_timeout, "timeout": timeout, "gpus": gpus, "preload": _names(preload), "agents": agents,
        "workers_per_trial": workers_per_trial, "backend": backend,
    }  # fmt: skip
    request = SweepRequest(
        target, _given(settings), master, tuple(conf or ()), py_files, as_json, quiet, debug,
        grid=tuple(grid or ()), zipped=tuple(zipped or ()), params=params,
    )  # fmt: skip
    return command.perform(request, lambda: perform_sweep(request))


@app.command(cls=_RunCommand)
def run(
    target: Target,
    workers: Annotated[int, _option(_GANG, "N", "Members that train.")],
    backend: Backend = None,
    ps: Annotated[int | None, _option(_GANG, "N", "Parameter servers beside them (default: 0).")] = None,
    evaluator: Annotated[bool, _option(_GANG, "", "One more member that evaluates.", "--evaluator")] = False,
    min_workers: Annotated[
        int | None, _option(_GANG, "N", "Go on with so many when agents are lost for good (default: wait for all).")
    ] = None,
    max_restarts: Annotated[
        int | None, _option(_GANG, "N", "How often the gang is formed again after a loss (default: 3).")
    ] = None,
    hang_timeout: Annotated[
        str | None, _option(_GANG, "TIME", "End a member that reports no step for so long (default: 120s).")
    ] = None,
    params: Annotated[
        list[str] | None, _option(_FUNCTION, "NAME=VALUE", "A parameter of the function. Repeatable.", "--param")
    ] = None,
    metric: Annotated[
        str | None, _option(_FUNCTION, "NAME", "The result's entry that checkpoints are compared by.")
    ] = None,
    mode: Annotated[
        str | None, _option(_FUNCTION, "max|min", "Which end of the metric is best (default: max).")
    ] = None,
    seed: Seed = None,
    dir: Dir = None,
    name: Name = None,
    timeout: Timeout = None,
    preload: Preload = None,
    master: Master = None,
    agents: Annotated[
        int | None, _option(_SPARK, "N", "Agents to start (default: one for each member); more stand by.")
    ] = None,
    gpus: Gpus = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Train one model in a gang of processes on Spark executors, which goes on from its last checkpoint after a loss.

    Progress is shown on stderr; the result is printed to stdout.
    """
    settings = {
        "workers": workers, "backend": backend, "ps": ps, "evaluator": evaluator or None, "min_workers": min_workers,
        "max_restarts": max_restarts, "hang_timeout": hang_timeout, "metric": metric, "mode": mode, "seed": seed,
        "dir": dir, "name": name, "timeout": timeout, "gpus": gpus, "preload": _names(preload), "agents": agents,
    }  # fmt: skip
    request = RunRequest(
        target, _given(settings), master, tuple(conf or ()), py_files, as_json, quiet, debug, params=tuple(params or ())
    )
    return command.perform(request, lambda: perform_run(request))


def perform_sweep(request: SweepRequest) -> Ended:
    """Check everything that needs no Spark, then make the session and sweep. Blocks. Raises as `sparktrain.sweep`."""
    space, settings = _space(request)
    agents = settings.pop("agents", None)
    call = command.prepare(request, settings.get("name", "sparktrain"))

    from sparktrain.api import sweep_target
    from sparktrain.driver.options import SweepOptions
    from sparktrain.driver.report import summary_table

    options = SweepOptions(**settings)
    result = sweep_target(call.target, space, options, session=call.session, agents=agents, display=call.display)
    return Ended(result, summary_table(result))


def perform_run(request: RunRequest) -> Ended:
    """Check everything that needs no Spark, then make the session and train. Blocks. Raises as `sparktrain.run`.

    A run that fails is no error here: it is shown, and has its exit code.
    """
    from sparktrain.spec.load import parse_params

    params = parse_params(request.params)
    settings = dict(request.settings)
    agents = settings.pop("agents", None)
    call = command.prepare(request, settings.get("name", "sparktrain"))

    from sparktrain.api import run_target
    from sparktrain.driver.options import RunOptions
    from sparktrain.driver.report import Lines

    options = RunOptions(**settings)
    end = run_target(call.target, params, options, session=call.session, agents=agents, display=call.display)
    return Ended(end.sweep, Lines(end.lines()))


def _space(request: SweepRequest) -> "tuple[Space, dict[str, Any]]":
    """What to try, and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.search.space import from_file, grid, zipped
    from sparktrain.spec.load import load_params, parse_assignments

    given = [name for name in ("grid", "zipped", "params") if getattr(request, name)]
    if len(given) != 1:
        have = " and ".join(f"--{name}".replace("zipped", "zip") for name in given) or "none of them"
        raise SpecError(f"say what to try with one of --grid, --zip and --params: the call has {have}")
    if request.params is not None:
        file = load_params(request.params)
        return from_file(file), {**file.settings, **request.settings}
    if request.grid:
        return grid(parse_assignments(request.grid, "--grid")), dict(request.settings)
    return zipped(parse_assignments(request.zipped, "--zip")), dict(request.settings)


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())
