"""The commands by name, each imported when it is called, and the application of Typer that parses their flags."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from sparktrain.cli import common
from sparktrain.cli.flags import COMMAND_CLASS, RootCommand

COMMANDS = {
    "sweep": "train_commands",
    "run": "train_commands",
    "resume": "train_commands",
    "extend": "train_commands",
    "refit": "train_commands",
    "check": "check_command",
    "predict": "predict_command",
    "submit": "submit_commands",
    "attach": "attach_command",
    "pack": "submit_commands",
    "ls": "runs_commands",
    "diff": "runs_commands",
    "rm": "runs_commands",
    "status": "inspect_commands",
    "top": "top_command",
    "logs": "inspect_commands",
    "best": "inspect_commands",
    "trace": "trace_command",
    "board": "board_command",
    "report": "report_command",
    "page": "page_command",
    "simulate": "simulate_command",
    "export": "export_command",
    "doctor": "doctor_command",
    "enqueue": "upkeep_commands",
    "drain": "upkeep_commands",
    "note": "upkeep_commands",
    "tag": "upkeep_commands",
    "fsck": "upkeep_commands",
    "gc": "upkeep_commands",
}
"""The module of each command, which has a function with its name."""
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
        # `ls` and `best` loaded all other commands, cryptography and asyncio before they read anything.
        function = getattr(import_module(f"sparktrain.cli.{COMMANDS[name]}"), name)
        settings = {"allow_interspersed_args": False} if name == _JOBS else {}
        app.command(name, cls=getattr(function, COMMAND_CLASS), context_settings=settings)(function)
    return app


# Typer takes 70 ms to assemble all commands, which is most of the time of a short one.
@cache
def _parser(command: str) -> Any:
    """What parses the flags of one command; without a command, those of all, for the help and for completion."""
    # Typer took 70 ms to assemble thirteen commands, which was most of the time of a short one.
    return typer.main.get_command(application([command] if command else COMMANDS))


def _in_place_of(error: Exception, command: str) -> str:
    """The flag that replaces an unknown one that `error` refuses; empty where none does."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    if not name or COMMANDS.get(command) != "train_commands":
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
