"""The command line: `sparktrain sweep TARGET`, and what its options mean. Wiring, no decisions of a run."""

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sparktrain.errors import InfraError, SparktrainError, SpecError, UserError

if TYPE_CHECKING:
    from sparktrain.driver.results import SweepResult
    from sparktrain.search.space import Space

EXIT_CODES = {
    0: "at least one trial succeeded, and none was lost",
    1: "an unexpected error, perhaps a bug of sparktrain",
    2: "the call is wrong: an option, a file, the function or the Spark session",
    3: "no trial succeeded",
    4: "trials were lost: the cluster failed more often than they were run again",
    5: "the cluster failed before the end; the same call may succeed later",
    6: "stopped by --timeout before every trial had ended",
    130: "interrupted by Ctrl-C",
}
_CODE_OF_STATUS = {"succeeded": 0, "failed": 3, "lost": 4, "stopped": 6}

EXAMPLES = """\
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

_PLAIN_FILES = (".py", ".zip", ".egg", ".whl")
_TENSORFLOW_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_PIPE_WIDTH = 4000
"""Nothing is broken into lines for a file."""

app = typer.Typer(
    name="sparktrain",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True)
class SweepRequest:
    """What was asked for on the command line, not yet checked."""

    target: str
    grid: tuple[str, ...] = ()
    zipped: tuple[str, ...] = ()
    params: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Options that were given, by their name in `SweepOptions`, and `agents`."""
    master: str | None = None
    conf: tuple[str, ...] = ()
    py_files: str | None = None
    as_json: bool = False
    quiet: bool = False
    debug: bool = False


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
        return _fail(f"{tell()}\nsee: sparktrain sweep --help", 2)


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
    """Hyperparameter sweeps of deep networks on the Spark cluster that you already have."""


_TRIALS, _RUN, _SPARK, _OUTPUT = "What to try", "The run", "Spark", "Output"


def _option(panel: str, metavar: str, told: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=told, rich_help_panel=panel, show_default=False)


class _SweepCommand(TyperCommand):
    """Ends its help with examples and exit codes: Typer's own epilog would run their lines together."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See base class."""
        super().format_help(ctx, formatter)
        typer.echo(f"\nExamples:\n{indent(EXAMPLES, '  ')}\nExit codes:")
        for code, meaning in EXIT_CODES.items():
            typer.echo(f"  {code:>3}  {meaning}")


@app.command(cls=_SweepCommand)
def sweep(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="The training function: FILE.py:FUNCTION, or package.module:function."),
    ],
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
    seed: Annotated[int | None, _option(_TRIALS, "N", "Seed of the run, from which each ctx.seed comes.")] = None,
    dir: Annotated[
        str | None, _option(_RUN, "PATH", "Where run directories are made (default: sparktrain-runs).")
    ] = None,
    name: Annotated[
        str | None, _option(_RUN, "NAME", "Of the run and its directory (default: function and time).")
    ] = None,
    trial_timeout: Annotated[str | None, _option(_RUN, "TIME", "End a trial after so long, as in 90s, 5m, 2h.")] = None,
    timeout: Annotated[str | None, _option(_RUN, "TIME", "Stop the run after so long, as in 90s, 5m, 2h.")] = None,
    retries: Annotated[int | None, _option(_RUN, "N", "How often a lost trial is run again (default: 3).")] = None,
    preload: Annotated[
        str | None,
        _option(_RUN, "M1,M2", "Modules that are imported before trials start (default: what the function uses)."),
    ] = None,
    master: Annotated[
        str | None, _option(_SPARK, "URL", "Spark's master (default: two executors on this machine).")
    ] = None,
    agents: Annotated[int | None, _option(_SPARK, "N", "Trials at a time (default: all slots of the session).")] = None,
    gpus: Annotated[int | None, _option(_SPARK, "N", "GPUs for each trial (default: 0).")] = None,
    py_files: Annotated[str | None, _option(_SPARK, "F1,F2", "Python files and archives for the executors.")] = None,
    conf: Annotated[list[str] | None, _option(_SPARK, "KEY=VALUE", "Spark's configuration. Repeatable.")] = None,
    as_json: Annotated[bool, _option(_OUTPUT, "", "Print the result as results.json has it.", "--json")] = False,
    quiet: Annotated[bool, _option(_OUTPUT, "", "Show no progress.", "--quiet", "-q")] = False,
    debug: Annotated[bool, _option(_OUTPUT, "", "Show the traceback of an error.", "--debug")] = False,
) -> int:
    """Call a training function once for each set of parameters, each in a fresh process on a Spark executor.

    Progress is shown on stderr; the table of trials is printed to stdout.
    """
    settings = {
        "metric": metric, "mode": mode, "trials": trials, "seed": seed, "dir": dir, "name": name, "retries": retries,
        "trial_timeout": trial_timeout, "timeout": timeout, "gpus": gpus, "preload": _names(preload), "agents": agents,
    }  # fmt: skip
    return _guarded(
        SweepRequest(
            target=target,
            grid=tuple(grid or ()),
            zipped=tuple(zipped or ()),
            params=params,
            settings={key: value for key, value in settings.items() if value is not None},
            master=master,
            conf=tuple(conf or ()),
            py_files=py_files,
            as_json=as_json,
            quiet=quiet,
            debug=debug,
        )
    )


def _guarded(request: SweepRequest) -> int:
    """Run, show the result, and turn every error into its exit code."""
    try:
        with _results(request.as_json) as out:
            result = run(request)
            _show(result, out, request.as_json)
            return _CODE_OF_STATUS[str(result.status)]
    except KeyboardInterrupt as error:
        return _fail(str(error) or "interrupted", 130)
    except SparktrainError as error:
        if request.debug:
            traceback.print_exc()
        code = 2 if isinstance(error, UserError) else 5 if isinstance(error, InfraError) else 1
        return _fail(str(error), code)
    except Exception as error:
        if request.debug:
            traceback.print_exc()
        hint = "" if request.debug else "; --debug shows where"
        return _fail(f"unexpected {type(error).__name__}: {error}{hint}", 1)


def run(request: SweepRequest) -> "SweepResult":
    """Check everything that needs no Spark, then make the session and sweep. Blocks. Raises as `sparktrain.sweep`."""
    from sparktrain.driver.display import choose_display
    from sparktrain.driver.session import local_session
    from sparktrain.driver.signature import resolve

    if not request.debug:
        # Py4J logs a traceback for each socket that Ctrl-C closes under it.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    space, settings = _space(request)
    conf = _conf(request.conf)
    py_files = _py_files(request.py_files)
    agents = settings.pop("agents", None)
    with _quiet_import():
        target = resolve(request.target)

    from sparktrain.api import sweep_target
    from sparktrain.driver.compose import SweepOptions

    @contextmanager
    def session() -> Iterator[Any]:
        with local_session(request.master, conf, settings.get("name", "sparktrain")) as spark:
            for path in py_files:
                spark.sparkContext.addPyFile(path)
            yield spark

    return sweep_target(
        target,
        space,
        SweepOptions(**settings),
        session=session,
        agents=agents,
        display=choose_display(quiet=request.quiet),
    )


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Have TensorFlow not tell about this machine when the function's module imports it; in trials it may."""
    given = os.environ.get(_TENSORFLOW_LOG_LEVEL)
    os.environ.setdefault(_TENSORFLOW_LOG_LEVEL, "2")
    try:
        yield
    finally:
        if given is None:
            del os.environ[_TENSORFLOW_LOG_LEVEL]


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


def _conf(entries: Sequence[str]) -> dict[str, str]:
    conf = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"--conf {entry!r} must be KEY=VALUE, such as spark.executor.memory=4g")
        conf[key.strip()] = value.strip()
    return conf


def _py_files(given: str | None) -> list[str]:
    """The files, which the training function can import here, too, from now on."""
    paths = [path.strip() for path in (given or "").split(",") if path.strip()]
    for path in paths:
        if "://" in path:
            continue
        if not path.endswith(_PLAIN_FILES):
            raise SpecError(f"--py-files {path!r} must be one of {', '.join(_PLAIN_FILES)}: name files, not folders")
        if not os.path.isfile(path):
            raise SpecError(f"--py-files {path!r} does not exist: correct the path")
        folder = os.path.dirname(os.path.abspath(path))
        sys.path.insert(0, folder if path.endswith(".py") else os.path.abspath(path))
    return paths


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


@contextmanager
def _results(as_json: bool) -> Iterator[int]:
    """The file descriptor that the result goes to: stdout.

    With `as_json`, nothing else reaches it meanwhile: what the function's module prints, or the JVM, goes to stderr.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        if as_json:
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            yield kept
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _show(result: "SweepResult", out: int, as_json: bool) -> None:
    from sparktrain.driver.report import to_bytes

    rest = memoryview(to_bytes(result) if as_json else _table(result, os.isatty(out)))
    try:
        while rest:
            rest = rest[os.write(out, rest) :]
    except BrokenPipeError:
        return  # whoever read it has seen enough


def _table(result: "SweepResult", terminal: bool) -> bytes:
    from rich.console import Console

    from sparktrain.driver.report import summary_table

    text = StringIO()
    width = None if terminal else _PIPE_WIDTH
    Console(file=text, width=width, force_terminal=terminal, force_jupyter=False, highlight=False).print(
        summary_table(result)
    )
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "".join(f"{line}\n" for line in lines).encode(sys.stdout.encoding or "utf-8", "replace")


def _fail(message: str, code: int) -> int:
    # Perhaps nobody is there to read it; the exit code tells.
    with suppress(OSError):
        print(f"error: {message}", file=sys.stderr, flush=True)
    return code
