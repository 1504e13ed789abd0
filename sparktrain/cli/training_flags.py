"""The flags of the commands that train, made from the catalog of options, and those that name where a run happens."""

from collections.abc import Callable, Collection, Mapping
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypedDict, TypeVar, get_args, get_type_hints

import typer

from sparktrain.cli.common import CommandRequest, variables_of
from sparktrain.cli.flags import Debug, Quiet, option
from sparktrain.config.call_option import Declared, Keywords, options_in
from sparktrain.config.panels import FUNCTION, METRIC, OUTPUT, RUN, SIZE, SPARK, WHERE
from sparktrain.errors import SpecError

F = TypeVar("F", bound=Callable[..., int])
R = TypeVar("R", bound=CommandRequest)

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The training function: FILE.py:FUNCTION, or package.module:function; or a script, FILE.py.",
    ),
]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Those that a script gets in each trial, after --.")
]
Form = Annotated[
    str | None, option(FUNCTION, "FORM", "How a script gets a parameter, such as NAME=VALUE (default: --NAME VALUE).")
]
MetricFrom = Annotated[
    str | None,
    option(
        METRIC,
        "REGEX",
        "Of a script: where its output has the metric, as in 'val_loss: ([0-9.]+)'. Each match is a step.",
    ),
]
MetricFile = Annotated[
    str | None, option(METRIC, "FILE", "Of a script: the file of JSON in which it writes metrics by name.")
]
KeepFiles = Annotated[
    list[str] | None,
    option(
        FUNCTION,
        "PATTERN",
        "Of a script: files of its working directory, as in '*.pt', that move to the run directory. Repeatable.",
    ),
]
Master = Annotated[str | None, option(WHERE, "URL", "Spark's master (default: two executors on this machine).")]
TensorFlowOnSpark = Annotated[
    bool,
    option(RUN, "", "Have `import tensorflowonspark` give sparktrain's modules of that name, for programs that "
           "were written for TensorFlowOnSpark.", "--tensorflowonspark"),
]  # fmt: skip
Local = Annotated[bool, option(WHERE, "", "Train in processes of this machine, without Spark and Java.", "--local")]
Slots = Annotated[int | None, option(SIZE, "N", "With --local: how many members train at a time (default: 2).")]
PyFiles = Annotated[str | None, option(SPARK, "F1,F2", "Python files and archives for the executors.")]
Conf = Annotated[list[str] | None, option(SPARK, "KEY=VALUE", "Spark's configuration. Repeatable.")]
AsJson = Annotated[bool, option(OUTPUT, "", "Print the content of results.json.", "--json")]


class CallFlags(TypedDict):
    """The flags of every command that trains: where it runs, and what it shows."""

    master: Master
    local: Local
    slots: Slots
    py_files: PyFiles
    conf: Conf
    as_json: AsJson
    quiet: Quiet
    debug: Debug


class Misuse(typer.BadParameter):
    """A value that an option refuses: `cli.main` shows it with the page of help."""

    def format_message(self) -> str:
        """See base class, which would name the parameter twice."""
        return str(self.message)


def takes(keywords: type[Keywords], omitted: Collection[str] = ()) -> Callable[[F], F]:
    """Give a command a flag for each option of `keywords` that has one and is not `omitted`, and those of `CallFlags`.

    The command receives their values in `**given`, and passes them to `request_of`.
    """

    def decorate(function: F) -> F:
        params = [param for param in signature(function).parameters.values() if param.kind is not Parameter.VAR_KEYWORD]
        common = [_common(name, hint) for name, hint in get_type_hints(CallFlags, include_extras=True).items()]
        options = [declared for name, declared in options_in(keywords).items() if name not in omitted]
        flags = [_flag(declared) for declared in options if declared.flag is not None]
        ordered = [flag.replace(kind=Parameter.KEYWORD_ONLY) for flag in [*params, *common, *flags]]
        function.__signature__ = Signature(ordered)  # type: ignore[attr-defined]  # Typer makes its flags from it
        return function

    return decorate


def request_of(kind: type[R], target: str, keywords: type[Keywords], flags: Mapping[str, Any], **fields: Any) -> R:
    """The request of a command with the flags `flags`; `fields` are the fields that its kind has. Raises Misuse."""
    common = {name: flags[name] for name in CallFlags.__annotations__}
    settings = settings_of(keywords, {name: words for name, words in flags.items() if name not in common})
    return kind(target=target, settings=settings, **{**common, "conf": tuple(common["conf"] or ()), **fields})


def script_of(arguments: list[str] | None, **options: str | list[str] | None) -> dict[str, Any]:
    """`CommandRequest.script` of what was given."""
    chosen = {name: value for name, value in options.items() if value is not None}
    return ({"arguments": tuple(arguments)} if arguments else {}) | chosen


def settings_of(keywords: type[Keywords], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The checked settings of the options that were given. Raises Misuse."""
    settings: dict[str, Any] = {}
    options = options_in(keywords)
    try:
        for name, words in flags.items():
            if name == "env":
                settings |= {key: options[key].checked(value, "--env") for key, value in variables_of(words).items()}
            elif words not in (None, False, []):
                declared = options[name]
                settings[name] = words if words is True else declared.read(words, str(declared.flag))
    except SpecError as error:
        raise Misuse(str(error)) from error
    return settings


def _flag(declared: Declared) -> Parameter:
    chosen = declared.option
    doc = chosen.flag_doc or chosen.doc
    if chosen.default_words and not chosen.flag_doc:
        doc = f"{doc.rstrip('.')} (default: {chosen.default_words})."
    kind = bool if not chosen.rule.metavar else list[str] | None if chosen.rule.repeats else str | None
    hint = Annotated[kind, option(chosen.panel, chosen.rule.metavar, doc, str(declared.flag))]  # type: ignore[valid-type]
    default = None if chosen.rule.metavar else False
    return Parameter(declared.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _common(name: str, hint: Any) -> Parameter:
    default = False if get_args(hint)[0] is bool else None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
