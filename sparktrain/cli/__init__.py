"""The command line: training (`sweep`, `run`, `resume`), and inspecting runs (`status`, `logs`, `export` ...)."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from sparktrain.cli import (
    board_command,
    check_command,
    common,
    doctor_command,
    export_command,
    inspect_commands,
    page_command,
    predict_command,
    report_command,
    runs_commands,
    simulate_command,
    submit_commands,
    top_command,
    train_commands,
    upkeep_commands,
)
from sparktrain.cli.flags import CommandWithExamples, RootCommand
from sparktrain.config.call_option import options_in
from sparktrain.config.continuing_options import ExtendKeywords, RefitKeywords
from sparktrain.config.option_catalog import LaunchKeywords, ResumeKeywords, RunKeywords

app = typer.Typer(
    name="sparktrain",
    cls=RootCommand,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, tuple[Callable[..., int], type[CommandWithExamples]]] = {
    "sweep": (train_commands.sweep, train_commands.SweepCommand),
    "run": (train_commands.run, train_commands.RunCommand),
    "resume": (train_commands.resume, train_commands.ResumeCommand),
    "extend": (train_commands.extend, train_commands.ExtendCommand),
    "refit": (train_commands.refit, train_commands.RefitCommand),
    "check": (check_command.check, check_command.CheckCommand),
    "predict": (predict_command.predict, predict_command.PredictCommand),
    "submit": (submit_commands.submit, submit_commands.SubmitCommand),
    "pack": (submit_commands.pack, submit_commands.PackCommand),
    "ls": (runs_commands.ls, runs_commands.LsCommand),
    "diff": (runs_commands.diff, runs_commands.DiffCommand),
    "rm": (runs_commands.rm, runs_commands.RmCommand),
    "status": (inspect_commands.status, inspect_commands.StatusCommand),
    "top": (top_command.top, top_command.TopCommand),
    "logs": (inspect_commands.logs, inspect_commands.LogsCommand),
    "best": (inspect_commands.best, inspect_commands.BestCommand),
    "board": (board_command.board, board_command.BoardCommand),
    "report": (report_command.report, report_command.ReportCommand),
    "page": (page_command.page, page_command.PageCommand),
    "simulate": (simulate_command.simulate, simulate_command.SimulateCommand),
    "export": (export_command.export, export_command.ExportCommand),
    "doctor": (doctor_command.doctor, doctor_command.DoctorCommand),
    "fsck": (upkeep_commands.fsck, upkeep_commands.FsckCommand),
    "gc": (upkeep_commands.gc, upkeep_commands.GcCommand),
}
KEYWORDS: dict[str, type] = {
    "sweep": LaunchKeywords,
    "run": RunKeywords,
    "resume": ResumeKeywords,
    "extend": ExtendKeywords,
    "refit": RefitKeywords,
}
"""The options of the commands that train."""
for _name, (_function, _class) in COMMANDS.items():
    # Arguments after the name of a job belong to that job.
    settings = {"allow_interspersed_args": False} if _class is submit_commands.SubmitCommand else {}
    app.command(_name, cls=_class, context_settings=settings)(_function)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default that of this process, and return its exit code (`EXIT_CODES`). Blocks."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return int(_command()(arguments or ["--help"], prog_name="sparktrain", standalone_mode=False) or 0)
    except Exception as error:
        # Typer has its own copy of click, under a private name: its usage errors are known by what they can do.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        known = next((name for name in COMMANDS if name in arguments[:1]), "")
        page = " ".join(["sparktrain", *filter(None, [known]), "--help"])
        return common.fail(f"{message()}{_in_place_of(error, known)}\nsee: {page}", 2)


@cache
def _command() -> Any:
    """The command line as click has it, which takes longer to build than most commands take."""
    return typer.main.get_command(app)


def _in_place_of(error: Exception, known: str) -> str:
    """The flag that replaces an unknown one that `error` refuses; empty where none does."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    options = options_in(KEYWORDS[known]).values() if known in KEYWORDS else ()
    flags = [each.flag for each in options if name in each.option.also]
    return f" Did you mean {flags[0]}?" if flags else ""


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
