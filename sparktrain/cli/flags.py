"""What the commands of the command line have in common: options, and the end of their help.

Nothing here imports the catalog of options, which `training_flags` needs: commands that inspect runs start sooner.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, Signature, signature
from textwrap import indent
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from sparktrain.cli.common import LOOKING_CODES
from sparktrain.config.panels import OUTPUT, PANELS

COMMAND_CLASS = "command_class"
"""The attribute of a command's function that has its class."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")

F = TypeVar("F", bound=Callable[..., Any])


def option(panel: str, metavar: str, doc: str, *names: str) -> Any:
    """An option of a command, in the panel of its help."""
    return typer.Option(*names, metavar=metavar, help=doc, rich_help_panel=panel, show_default=False)


class RootCommand(TyperGroup):
    """The command line itself; see `_plain`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """See base class."""
        return _plain(super().get_params(ctx))


class CommandWithExamples(TyperCommand):
    """Ends its help with examples and exit codes: Typer's own epilog would run their lines together."""

    examples: str
    codes: Mapping[int, str]
    heading: str

    def get_params(self, ctx: Any) -> list[Any]:
        """See base class."""
        params = _plain(super().get_params(ctx))
        for param in params[-1:]:
            param.rich_help_panel = OUTPUT  # --help, which Typer shows in a panel before all others
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See base class."""
        super().format_help(ctx, formatter)
        typer.echo(f"\nExamples:\n{indent(self.examples, '  ')}\n{self.heading}:")
        for code, meaning in self.codes.items():
            typer.echo(f"  {code:>3}  {meaning}")


def with_help(examples: str, codes: Mapping[int, str] = LOOKING_CODES, heading: str = "Exit codes") -> Callable[[F], F]:
    """Give the function of a command the class that Typer makes it of, and its flags the order of `PANELS`.

    Its help ends with `examples` and `codes`.
    """

    def decorate(function: F) -> F:
        attributes = {"examples": examples, "codes": codes, "heading": heading}
        setattr(function, COMMAND_CLASS, type("Command", (CommandWithExamples,), attributes))
        params = [param.replace(kind=Parameter.KEYWORD_ONLY) for param in signature(function).parameters.values()]
        function.__signature__ = Signature(sorted(params, key=_place))  # type: ignore[attr-defined]
        return function

    return decorate


Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="The run directory: a path or a URL, such as hdfs:///runs/mnist.")
]
Quiet = Annotated[bool, option(OUTPUT, "", "Show no progress.", "--quiet", "-q")]
Debug = Annotated[bool, option(OUTPUT, "", "Show the traceback of an error.", "--debug")]


def _plain(parameters: list[Any]) -> list[Any]:
    """The parameters, with text as it stands, and with help that names no Python type and no braces."""
    for parameter in parameters:
        if not isinstance(parameter.process_value, partial):
            # Typer itself shows <bool> after a flag, and <str> beside each argument.
            parameter.process_value = partial(_value_of, parameter, parameter.process_value)
            parameter.display_type_rich = partial(_value_shown, parameter)
            if parameter.param_type_name == "argument" and parameter.required:
                parameter.get_usage_pieces = partial(_usage_of, parameter)
    return parameters


def _place(param: Parameter) -> int:
    """The place of a parameter in the help: arguments first."""
    panel = getattr(param.annotation.__metadata__[0], "rich_help_panel", None)
    return PANELS.index(panel) + 1 if panel else 0


def _value_shown(parameter: Any, ctx: Any) -> str:
    """What the help shows as the value of an option; nothing for a flag, and for an argument, which is its own name."""
    return (parameter.metavar or "") if parameter.param_type_name == "option" else ""


def _usage_of(parameter: Any, ctx: Any) -> list[str]:
    return [parameter.metavar]


def _value_of(parameter: Any, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """The value of a parameter: text and whole numbers without pydantic, which Typer imports for 0.15 s of CPU time."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if kind is int and _INTEGER.fullmatch(str(value)):
        value = int(value)
    missing = value is None and parameter.required
    if missing or not (value is None or kind in (str, list[str]) or isinstance(value, int)):
        return convert(ctx, value)
    return parameter.callback(ctx, parameter, value) if parameter.callback is not None else value
