"""What the commands of the command line have in common: options, and the end of their help."""

from collections.abc import Mapping
from textwrap import indent
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from sparktrain.cli.common import TRAINING_CODES

TRIALS, GANG, RUN, SPARK, OUTPUT = "What to try", "The gang", "The run", "Spark", "Output"
FUNCTION = "The function"
RESUMING = "If the run is there already"
SHOWN = "What is shown"


def option(panel: str, metavar: str, told: str, *names: str) -> Any:
    """An option of a command, in the panel of its help."""
    return typer.Option(*names, metavar=metavar, help=told, rich_help_panel=panel, show_default=False)


class CommandWithExamples(TyperCommand):
    """Ends its help with examples and exit codes: Typer's own epilog would run their lines together."""

    examples = ""
    heading = "Exit codes"
    codes: ClassVar[Mapping[int, str]] = TRAINING_CODES

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See base class."""
        super().format_help(ctx, formatter)
        typer.echo(f"\nExamples:\n{indent(self.examples, '  ')}\n{self.heading}:")
        for code, meaning in self.codes.items():
            typer.echo(f"  {code:>3}  {meaning}")


Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="The training function: FILE.py:FUNCTION, or package.module:function.")
]
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="The run directory: a path or a URL, such as hdfs:///runs/mnist.")
]
Seed = Annotated[int | None, option(RUN, "N", "Seed of the run, from which each ctx.seed comes.")]
Dir = Annotated[str | None, option(RUN, "PATH", "Where run directories are made (default: sparktrain-runs).")]
Name = Annotated[str | None, option(RUN, "NAME", "Of the run and its directory (default: function and time).")]
StoreTimeout = Annotated[
    str | None, option(RUN, "TIME", "How long the run outlives an outage of its store (default: 5m).")
]
Timeout = Annotated[str | None, option(RUN, "TIME", "Stop the run after so long, as in 90s, 5m, 2h.")]
Preload = Annotated[
    str | None,
    option(RUN, "M1,M2", "Modules that are imported before training starts (default: what the function uses)."),
]
DataVersion = Annotated[
    str | None, option(RUN, "TEXT", "What you call the data: a run is not resumed with data of another version.")
]
AllowChanged = Annotated[
    str | None, option(RESUMING, "K1,K2", "What may differ from before: code, space, data, metric, seed or gang.")
]
RetryFailed = Annotated[
    bool, option(RESUMING, "", "Run failed trials again, too, with the code as it is.", "--retry-failed")
]
Backend = Annotated[
    str | None, option(GANG, "NAME", "What connects members: horovod, tensorflow, none, or auto (the default).")
]
Master = Annotated[str | None, option(SPARK, "URL", "Spark's master (default: two executors on this machine).")]
Gpus = Annotated[int | None, option(SPARK, "N", "GPUs for each process that trains (default: 0).")]
PyFiles = Annotated[str | None, option(SPARK, "F1,F2", "Python files and archives for the executors.")]
Conf = Annotated[list[str] | None, option(SPARK, "KEY=VALUE", "Spark's configuration. Repeatable.")]
Env = Annotated[
    list[str] | None,
    option(
        RUN, "NAME[=VALUE]", "A variable for trials; of NAME alone the value here, which `ps` does not show.", "--env"
    ),
]
AsJson = Annotated[bool, option(OUTPUT, "", "Print the result as results.json has it.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, "", "Show no progress.", "--quiet", "-q")]
Debug = Annotated[bool, option(OUTPUT, "", "Show the traceback of an error.", "--debug")]


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given."""
    return {key: value for key, value in settings.items() if value is not None}


def names(text: str | None) -> tuple[str, ...] | None:
    """The names in a list with commas."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())
