"""How a script of the user is called: the words of its command line for the parameters of a trial. Pure."""

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

FORM = "--NAME VALUE"
"""How a parameter becomes words of the command line, unless the call has another form."""
_BY_FUNCTION = re.compile(r"^\s*(?:import|from)\s.*\b(?:typer|click|cyclopts|fire)\b", re.M)
"""Libraries that make options of the parameters of functions, with dashes for underscores."""
_OF_KEYS = re.compile(r"\b(?:hydra|omegaconf|OmegaConf)\b")
"""Libraries that take keys of a configuration for arguments, and lists in brackets."""
_BY_CLASS = re.compile(rf"\b(?:HfArgumentParser|LightningCLI|jsonargparse)\b|{_OF_KEYS.pattern}")
"""Parsers that make options of fields and parameters of classes, which other packages may have, or of keys of files."""
_BOOLEAN_VALUES = re.compile(
    r"\b(?:DEFINE_bool|DEFINE_boolean|HfArgumentParser|LightningCLI|jsonargparse)\b|^\s*(?:import|from)\s+fire\b", re.M
)
"""Parsers where booleans take a value, and `--no-NAME` is unknown: `DEFINE_bool` is of absl."""
_SWITCH = re.compile(r"store_(?:true|false|const)|\bis_flag\s*=\s*True")
"""Keywords of an option that takes no value and has no opposite."""
_COMPUTED = re.compile(r"--(?:[{%]|[\"']\s*\+)")
"""An option with a name that the script computes."""
_TYPE_CHECKING = re.compile(r"(?:\w+\.)?TYPE_CHECKING")


class ScriptCall(Struct, frozen=True):
    """A script and how it is called, but for the parameters of a trial."""

    module: str
    path: str
    """The file on the user's machine, absolute."""
    folder: str
    """The working directory of the call."""
    arguments: tuple[str, ...] = ()
    form: str = FORM
    metric_from: str = ""
    metric_file: str = ""
    keep_files: tuple[str, ...] = ()


def words_of(form: str, params: Mapping[str, Any], source: str) -> Iterator[str]:
    """The words of the command line for `params`, spelled as the options in the text `source` of the script."""
    for name, value in params.items():
        yield from _words(form, spelled(name, source), value, source)


def _words(form: str, name: str, value: Any, source: str) -> Iterator[str]:
    if value is None:
        return
    if form == FORM and isinstance(value, bool):
        yield from _of_boolean(name, value, source)
        return
    if form == FORM and not isinstance(value, list | tuple) and _text(value).startswith("-"):
        yield f"--{name}={_text(value)}"  # parsers take a word that starts with a dash for an option, such as -1e-05
        return
    values = [_text(entry) for entry in value] if isinstance(value, list | tuple) else [_text(value)]
    for word in shlex.split(form):
        if word == "VALUE":
            yield from values
        else:
            joined = ",".join(values)
            bracketed = f"[{joined}]" if isinstance(value, list | tuple) and _OF_KEYS.search(source) else joined
            yield word.replace("NAME", name).replace("VALUE", bracketed)


def spelled(name: str, source: str) -> str:
    """The name of a parameter as the script writes its option: with dashes or with underscores."""
    dashed = name.replace("_", "-")
    if _has_option(name, source) or dashed == name:
        return name
    return dashed if _has_option(dashed, source) or _BY_FUNCTION.search(source) else name


def _has_option(name: str, source: str) -> bool:
    return re.search(rf"--{re.escape(name)}(?![\w-])", source) is not None


def _of_boolean(name: str, value: bool, source: str) -> Iterator[str]:
    call = rf"(?:(add_argument|option|Option)\([^()]*)?--{re.escape(name)}[\"']((?:[^()]|\([^()]*\))*)"
    declared = re.search(call, source)
    function, keywords = (declared[1], declared[2]) if declared is not None else (None, "")
    has_type = re.search(r"\btype\s*=\s*(?!bool\b)", keywords) is not None
    if function == "Option" or _SWITCH.search(keywords):  # `Option` is of typer
        yield from [f"--{name}"] if value else []
    elif function == "add_argument" and "action" not in keywords and not has_type:
        yield f"--{name}={value or ''}"  # argparse keeps the text, or calls bool(): no text alone is false then
    elif _BOOLEAN_VALUES.search(source) or has_type or function == "option":
        yield f"--{name}={value}"
    else:
        yield f"--{name}" if value else f"--no-{name}"


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def names(source: str, parameter: str) -> bool:
    """Whether the text of a module has the parameter as a word, with underscores or dashes."""
    spelling = re.escape(parameter).replace("_", "[_-]")
    return re.search(rf"(?<![A-Za-z0-9_]){spelling}(?![A-Za-z0-9_])", source) is not None


def takes_any(source: str) -> bool:
    """Whether a script takes options that no text of its own has."""
    return _BY_CLASS.search(source) is not None


def taken_for(source: str, parameter: str) -> str:
    """The longer option for which argparse would take that of the parameter; empty where it has the option itself."""
    is_of_argparse = re.search(r"\bArgumentParser\b", source) and not re.search(r"allow_abbrev\s*=\s*False", source)
    name = spelled(parameter, source)
    if not is_of_argparse or _COMPUTED.search(source) or _has_option(name, source):
        return ""
    longer = re.search(rf"[\"'](--{re.escape(name)}[\w-]+)[\"']", source)
    return longer[1] if longer is not None else ""


def is_script(source: bytes) -> bool:
    """Whether a file does something when it is run: it asks for its name, or calls or loops at its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    acts = (ast.For, ast.While, ast.With, ast.Try, ast.If)
    return any(
        (isinstance(node, acts) and not _is_import_guard(node))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in body
    )


def _is_import_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Try | ast.If):
        return False
    is_of_types = isinstance(node, ast.If) and _TYPE_CHECKING.fullmatch(ast.unparse(node.test)) is not None
    parts = node.orelse if is_of_types else [*node.body, *node.orelse]
    return all(isinstance(part, ast.Import | ast.ImportFrom) for part in parts)
