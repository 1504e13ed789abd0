"""The commands by name, each imported when it is called, and the application of Typer that parses their flags."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from sparktrain.cli import common
from sparktrain.cli.flags import RootCommand

COMMANDS: dict[str, tuple[str, str]] = {
    "sweep": ("train_commands", "SweepCommand"),
    "run": ("train_commands", "RunCommand"),
    "resume": ("train_commands", "ResumeCommand"),
    "extend": ("train_commands", "ExtendCommand"),
    "refit": ("train_commands", "RefitCommand"),
    "check": ("check_command", "CheckCommand"),
    "predict": ("predict_command", "PredictCommand"),
    "submit": ("submit_commands", "SubmitCommand"),
    "pack": ("submit_commands", "PackCommand"),
    "ls": ("runs_commands", "LsCommand"),
    "diff": ("runs_commands", "DiffCommand"),
    "rm": ("runs_commands", "RmCommand"),
    "status": ("inspect_commands", "StatusCommand"),
    "top": ("top_command", "TopCommand"),
    "logs": ("inspect_commands", "LogsCommand"),
    "best": ("inspect_commands", "BestCommand"),
    "board": ("board_command", "BoardCommand"),
    "report": ("report_command", "ReportCommand"),
    "page": ("page_command", "PageCommand"),
    "simulate": ("simulate_command", "SimulateCommand"),
    "export": ("export_command", "ExportCommand"),
    "doctor": ("doctor_command", "DoctorCommand"),
    "enqueue": ("upkeep_commands", "EnqueueCommand"),
    "note": ("upkeep_commands", "NoteCommand"),
    "tag": ("upkeep_commands", "TagCommand"),
    "fsck": ("upkeep_commands", "FsckCommand"),
    "gc": ("upkeep_commands", "GcCommand"),
}
"""The module of each command, which has a function with its name, and the class that Typer makes it of."""
_JOBS = "submit"
"""The command that takes arguments of a job, which follow the name of that job."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, and return its exit code. Blocks."""
    command = next((name for name in COMMANDS if name in arguments[:1]), "")
    try:
        return int(_parser(command)(arguments or ["--help"], prog_name="sparktrain", standalone_mode=False) or 0)
    except Exception as error:
        # Typer has its own copy of click, under a private name: its usage errors are known by what they can do.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        page = " ".join(["sparktrain", *filter(None, [command]), "--help"])
        return common.fail(f"{message()}{_in_place_of(error, command)}\nsee: {page}", 2)


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with the commands `names`, by default with all of them. Imports their modules."""
    app = typer.Typer(
        name="sparktrain",
        cls=RootCommand,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names:
        module_name, class_name = COMMANDS[name]
        module = import_module(f"sparktrain.cli.{module_name}")
        settings = {"allow_interspersed_args": False} if name == _JOBS else {}
        app.command(name, cls=getattr(module, class_name), context_settings=settings)(getattr(module, name))
    return app


@cache
def _parser(command: str) -> Any:
    """What parses the flags of one command; without a command, those of all, for the help and for completion."""
    return typer.main.get_command(application([command] if command else COMMANDS))


def _in_place_of(error: Exception, command: str) -> str:
    """The flag that replaces an unknown one that `error` refuses; empty where none does."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    if not name or COMMANDS.get(command, ("", ""))[0] != "train_commands":
        return ""
    from sparktrain.cli.train_commands import KEYWORDS
    from sparktrain.config.call_option import options_in

    flags = [declared.flag for declared in options_in(KEYWORDS[command]).values() if name in declared.option.also]
    return f" Did you mean {flags[0]}?" if flags else ""


def _version(is_requested: bool) -> None:
    if is_requested:
        from sparktrain import __version__

        typer.echo(f"sparktrain {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Hyperparameter sweeps and distributed training of deep networks on the Spark cluster that you already have."""
