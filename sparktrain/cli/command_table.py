"""The commands by name, each imported when it is called, and the application of Typer that parses their flags."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from sparktrain.cli import common
from sparktrain.cli.flags import COMMAND_CLASS, RootCommand

COMMANDS = {
    "sweep": "cli.train_commands",
    "run": "cli.train_commands",
    "resume": "cli.train_commands",
    "extend": "cli.train_commands",
    "refit": "cli.train_commands",
    "check": "testing.check_command",
    "predict": "ml.predict_command",
    "submit": "cli.submit_commands",
    "attach": "cli.train_commands",
    "pack": "cli.submit_commands",
    "ls": "cli.runs_commands",
    "diff": "cli.runs_commands",
    "rm": "cli.runs_commands",
    "status": "cli.inspect_commands",
    "top": "cli.top_command",
    "logs": "cli.inspect_commands",
    "best": "cli.inspect_commands",
    "trace": "cli.inspect_commands",
    "board": "views.board_command",
    "report": "views.report_command",
    "page": "views.page_command",
    "simulate": "ops.simulate_command",
    "export": "cli.export_command",
    "doctor": "ops.doctor_command",
    "enqueue": "cli.upkeep_commands",
    "drain": "cli.upkeep_commands",
    "note": "cli.upkeep_commands",
    "tag": "cli.upkeep_commands",
    "fsck": "cli.upkeep_commands",
    "gc": "cli.upkeep_commands",
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
        return common.fail(f"{message()}{_in_place_of(error, command, arguments)}\nsee: {page}", 2)


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
        function = getattr(import_module(f"sparktrain.{COMMANDS[name]}"), name)
        settings = {"allow_interspersed_args": False} if name == _JOBS else {}
        app.command(name, cls=getattr(function, COMMAND_CLASS), context_settings=settings)(function)
    return app


# Typer takes 70 ms to assemble all commands, which is most of the time of a short one.
@cache
def _parser(command: str) -> Any:
    """What parses the flags of one command; without a command, those of all, for the help and for completion."""
    # Typer took 70 ms to assemble thirteen commands, which was most of the time of a short one.
    return typer.main.get_command(application([command] if command else COMMANDS))


def _in_place_of(error: Exception, command: str, arguments: Sequence[str]) -> str:
    """The flag that replaces an unknown one that `error` refuses, or where a script gets it; empty for neither."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    if not name or COMMANDS.get(command) != "cli.train_commands":
        return ""
    from sparktrain.cli.train_commands import KEYWORDS
    from sparktrain.config.call_option import options_in

    flags = [declared.flag for declared in options_in(KEYWORDS[command]).values() if name in declared.option.also]
    if flags:
        return f" Did you mean {flags[0]}?"
    script = next((word for word in arguments if word.endswith(".py")), "")
    return f" Arguments of {script} come after --, at the end of the line." if script else ""


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
