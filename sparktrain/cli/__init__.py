"""The command line: training (`sweep`, `run`, `resume`), and looking after runs (`status`, `logs`, `fsck` ...)."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from sparktrain import command
from sparktrain.cli import doctor, inspect, submit, train, upkeep
from sparktrain.cli.options import Command

app = typer.Typer(
    name="sparktrain",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, tuple[Callable[..., int], type[Command]]] = {
    "sweep": (train.sweep, train.SweepCommand),
    "run": (train.run, train.RunCommand),
    "resume": (train.resume, train.ResumeCommand),
    "submit": (submit.submit, submit.SubmitCommand),
    "pack": (submit.pack, submit.PackCommand),
    "status": (inspect.status, inspect.StatusCommand),
    "logs": (inspect.logs, inspect.LogsCommand),
    "best": (inspect.best, inspect.BestCommand),
    "doctor": (doctor.doctor, doctor.DoctorCommand),
    "fsck": (upkeep.fsck, upkeep.FsckCommand),
    "gc": (upkeep.gc, upkeep.GcCommand),
}
for _name, (_function, _class) in COMMANDS.items():
    # What follows the name of a job is for that job.
    settings = {"allow_interspersed_args": False} if _class is submit.SubmitCommand else {}
    app.command(_name, cls=_class, context_settings=settings)(_function)


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
        known = next((name for name in COMMANDS if name in arguments[:1]), "")
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
