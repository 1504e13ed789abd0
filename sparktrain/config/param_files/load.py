"""Parameter files and `--grid` options of the command line, read into plain data; messages name file and line.

A YAML or JSON file of a sweep is a mapping with one of `grid`, `zip`, `cases` and `space`, and settings:

    grid:                    # or zip: lists of values, by name
      lr: [0.1, 1e-3]
      dropout: [0.4, 0.7]
    metric: accuracy
    trial_timeout: 30m

or a list of mappings, each a case. A CSV file has the names in its first row, and a case in every other. The file of a
run has `params`, one value by name, and settings:

    params:
      lr: 0.01
    workers: 4

`param_values.typed` interprets text without quotes: `1e-3` is a number and `no` is text, unlike in YAML 1.1.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from sparktrain.config.call_option import Declared, Keywords, nearest, options_in
from sparktrain.config.option_catalog import LaunchKeywords, RunKeywords
from sparktrain.config.param_files.distribution_text import is_call, parsed
from sparktrain.config.param_files.yaml_nodes import MAX_FILE_BYTES, Document
from sparktrain.config.param_values import check_equal_lengths, check_name, did_you_mean, plain, shown, typed
from sparktrain.errors import SpecError

Kind = Literal["grid", "zip", "cases", "space"]

SUFFIXES = (".yaml", ".yml", ".json", ".csv")
GANG_SUFFIXES = SUFFIXES[:-1]
MAX_CSV_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ParamsFile:
    """The checked content of a parameter file."""

    path: Path
    kind: Kind
    values: dict[str, Any] | list[dict[str, Any]]
    """Lists by name of a grid or zip; mappings of cases; distributions, lists, constants and mappings of a space."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings that the file has, by their key; timeouts in seconds."""


@dataclass(frozen=True)
class GangFile:
    """The checked content of the parameter file of one run."""

    path: Path
    params: dict[str, Any]
    settings: dict[str, Any]
    """Settings as in `ParamsFile`."""


def load_params(path: str | Path) -> ParamsFile:
    """Read the parameter file of a sweep. Blocks on the file.

    Raises SpecError, with file and line, for whatever is wrong in it.
    """
    path = Path(path)
    text = _read(path, SUFFIXES)
    if path.suffix.lower() == ".csv":
        return ParamsFile(path, "cases", _csv_cases(path, text))
    document = Document(path, text)
    if isinstance(document.root, yaml.SequenceNode):
        return ParamsFile(path, "cases", _cases(document, document.root))
    return _sweep_file(document)


def load_gang(path: str | Path) -> GangFile:
    """Read the parameter file of a run. Blocks, and raises, as `load_params`."""
    path = Path(path)
    document = Document(path, _read(path, GANG_SUFFIXES))
    entries = _entries(document, ("params",), _OF_RUN)
    params: dict[str, Any] = {}
    for name, (key, node) in document.entries(entries["params"][1], "params").items() if "params" in entries else ():
        params[check_name(name, f"{document.at(key)}: params")] = document.value(node, f"params: {name!r}")
    return GangFile(path, params, _settings(document, entries, _OF_RUN))


def parse_assignments(options: Sequence[str], option: str = "--grid") -> dict[str, list[Any]]:
    """Lists by name of all `options`, in their order. Raises SpecError; a name must not be given twice."""
    lists: dict[str, list[Any]] = {}
    for text in options:
        name, values = parse_assignment(text, option)
        if name in lists:
            raise SpecError(f"{option} {text!r}: {name!r} is given twice; write its values into one list: {name}=v1,v2")
        lists[name] = values
    return lists


def parse_assignment(text: str, option: str = "--grid") -> tuple[str, list[Any]]:
    """Name and values of `text`, which is `name=value,value` or `name=[JSON list]`.

    Values mean what they mean in a CSV file: `0.1` is a number, `true` a bool, `null` None, all else text. Double
    quotes keep a comma within a value: `layers="64,32",128`. To pass a number as text, or a list as a value, write a
    JSON list: `layers=[[64, 32], [128]]`, `version=["1", "2"]`.

    >>> parse_assignment("lr=0.1,1e-2")
    ('lr', [0.1, 0.01])
    """
    subject = f"{option} {shown(text)}"
    name, equals, literal = text.partition("=")
    if not equals:
        raise SpecError(
            f"{subject}: no '=', NAME=VALUE,VALUE is expected; write {option} {name.strip() or 'lr'}=0.1,0.01"
        )
    name = check_name(name.strip(), subject)
    literal = literal.strip()
    if not literal:
        raise SpecError(f"{subject}: {name!r} has no value; write {option} {name}=VALUE,VALUE, or null for None")
    return name, _json_values(literal, subject) if literal.startswith("[") else _option_values(literal, subject)


def parse_params(options: Sequence[str], option: str = "--param") -> dict[str, Any]:
    """One value by name of all `options`, each `name=value`, in their order. Raises SpecError.

    Values mean what they mean in `parse_assignment`, but for a JSON list, which is one value here.

    >>> parse_params(["lr=0.1", "layers=[64, 32]", 'title="a,b"'])
    {'lr': 0.1, 'layers': [64, 32], 'title': 'a,b'}
    """
    params: dict[str, Any] = {}
    for text in options:
        name, values = parse_assignment(text, option)
        if name in params:
            raise SpecError(f"{option} {text!r}: {name!r} is given twice; remove one of them")
        is_list = text.partition("=")[2].strip().startswith("[")
        if len(values) > 1 and not is_list:
            raise SpecError(
                f"{option} {shown(text)}: {name!r} has {len(values)} values, a run takes one; give one, or try several "
                f"with sparktrain sweep --grid; a list is written as {name}=[1, 2], and text with a comma in double "
                "quotes"
            )
        params[name] = values if is_list else values[0]
    return params


def parse_space(options: Sequence[str], option: str = "--space") -> dict[str, Any]:
    """Distributions, constants and lists by name of all `options`, each `name=value`, in their order. Raises SpecError.

    A value is a distribution as in Python, one value, which is a constant, or several as in `parse_assignment`.

    >>> parse_space(["lr=loguniform(1e-4, 1e-1)", "epochs=10", "units=[64, 256]"])["epochs"]
    10
    """
    space: dict[str, Any] = {}
    for text in options:
        name, _, value_text = (part.strip() for part in text.partition("="))
        if is_call(value_text):
            value: Any = parsed(value_text, f"{option} {shown(text)}")
            check_name(name, f"{option} {shown(text)}")
        else:
            name, values = parse_assignment(text, option)
            value = values[0] if len(values) == 1 and not value_text.startswith("[") else values
        if name in space:
            raise SpecError(f"{option} {text!r}: {name!r} is given twice; remove one of them")
        space[name] = value
    return space


def _json_values(text: str, subject: str) -> list[Any]:
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SpecError(
            f"{subject}: starts with '[', so a JSON list is expected, but {error}; quote text with double quotes, "
            "and the whole option with single quotes"
        ) from None
    if not values:
        raise SpecError(f"{subject} is an empty list, at least one value is needed; add a value")
    return [plain(value, subject) for value in values]


def _option_values(text: str, subject: str) -> list[Any]:
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise SpecError(
            f"{subject}: the values cannot be separated ({error}); put double quotes around a whole value, and double "
            'those within it: "type ""a,b"""'
        ) from None
    cells = [cell.strip() for cell in cells]
    if "" in cells:
        raise SpecError(f"{subject}: value {cells.index('') + 1} is empty; remove the comma, or write null for None")
    return [plain(typed(cell, subject), subject) for cell in cells]


def _read(path: Path, suffixes: Sequence[str]) -> str:
    if path.suffix.lower() not in suffixes:
        raise SpecError(f"{path}: a parameter file ends in {', '.join(suffixes)}; rename it by its format")
    limit = MAX_CSV_BYTES if path.suffix.lower() == ".csv" else MAX_FILE_BYTES
    try:
        if path.is_file() and path.stat().st_size > limit:
            raise SpecError(
                f"{path}: {path.stat().st_size:,} bytes, a {path.suffix} file has at most {limit:,}; "
                "list fewer combinations, or write the cases as CSV"
            )
        data = path.read_bytes()
    except FileNotFoundError:
        near = did_you_mean(path.name, _names_beside(path))
        raise SpecError(f"{path}: no such file{near or '; correct the path'}") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a directory, a file is expected; pass one of its files") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}; check the path and its permissions") from None
    try:
        # Excel and some editors on Windows write a byte order mark, which would become a part of the first name.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    if not text.strip():
        raise SpecError(f"{path}: the file is empty; write a key such as 'grid:', or the header and rows of a CSV")
    return text


def _names_beside(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []


_Settings = dict[str, Declared]


def _of_file(keywords: type[Keywords]) -> _Settings:
    """The options that a file may set."""
    return {name: declared for name, declared in options_in(keywords).items() if declared.option.in_file}


_OF_SWEEP = _of_file(LaunchKeywords)
_OF_RUN = _of_file(RunKeywords)
_KINDS: tuple[Kind, ...] = ("grid", "zip", "cases", "space")


def _sweep_file(document: Document) -> ParamsFile:
    entries = _entries(document, _KINDS, _OF_SWEEP)
    kinds = [kind for kind in _KINDS if kind in entries]
    if len(kinds) != 1:
        have = (
            f"has {' and '.join(kinds)}; remove all but one"
            if kinds
            else "has none; write 'grid:' with lists of values"
        )
        last = entries[kinds[-1]][0] if kinds else document.root
        raise SpecError(f"{document.at(last)}: exactly one of grid, zip, cases and space is expected, the file {have}")
    kind = kinds[0]
    node = entries[kind][1]
    return ParamsFile(document.path, kind, _values(document, node, kind), _settings(document, entries, _OF_SWEEP))


def _values(document: Document, node: yaml.Node, kind: Kind) -> dict[str, Any] | list[dict[str, Any]]:
    match kind:
        case "cases":
            return _cases(document, node)
        case "space":
            return _space(document, node, kind)
    return _lists(document, node, kind)


def _space(document: Document, node: yaml.Node, scope: str) -> dict[str, Any]:
    """The parameters of a space, or a mapping within one."""
    params: dict[str, Any] = {}
    for name, (key, value) in document.entries(node, scope).items():
        subject = f"{scope}: {check_name(name, f'{document.at(key)}: {scope}') if scope == 'space' else name!r}"
        if isinstance(value, yaml.MappingNode):
            params[name] = _space(document, value, subject)
        else:
            plain_value = document.value(value, subject)
            is_distribution = is_call(plain_value)
            params[name] = parsed(plain_value, f"{document.at(value)}: {subject}") if is_distribution else plain_value
    if not params:
        raise SpecError(
            f"{document.at(node)}: {scope} is empty, at least one parameter is needed; write 'lr: uniform(0, 1)'"
        )
    return params


_Entries = dict[str, tuple[yaml.Node, yaml.Node]]


def _entries(document: Document, kinds: Sequence[str], settings: _Settings) -> _Entries:
    """The file's settings by key; refuses unknown keys."""
    entries = document.entries(document.root, "the file")
    allowed = (*kinds, *settings)
    for name, (key, _) in entries.items():
        if name not in allowed:
            raise SpecError(
                f"{document.at(key)}: unknown key {shown(name)}{nearest(name, settings.values(), kinds) or ';'} "
                f"allowed: {', '.join(allowed)}"
            )
    return entries


def _settings(document: Document, entries: _Entries, settings: _Settings) -> dict[str, Any]:
    return {name: _setting(document, name, *entries[name], settings[name]) for name in entries if name in settings}


def _setting(document: Document, name: str, key: yaml.Node, node: yaml.Node, declared: Declared) -> Any:
    value = document.value(node, name)
    if value is None:
        raise SpecError(f"{document.at(key)}: {name} has no value; give one, or remove the line")
    return declared.checked(value, f"{document.at(node)}: {name}")


def _lists(document: Document, node: yaml.Node, kind: Kind) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = {}
    for name, (key, values) in document.entries(node, kind).items():
        subject = f"{kind}: {check_name(name, f'{document.at(key)}: {kind}')!r}"
        lists[name] = [document.value(item, subject) for item in document.items(values, subject)]
    if not lists:
        raise SpecError(
            f"{document.at(node)}: {kind} is empty, at least one parameter is needed; write 'lr: [0.1, 0.01]'"
        )
    if kind == "zip":
        check_equal_lengths(lists, f"{document.at(node)}: zip")
    return lists


def _cases(document: Document, node: yaml.Node) -> list[dict[str, Any]]:
    return [_case(document, item, f"case {number}") for number, item in enumerate(document.items(node, "cases"), 1)]


def _case(document: Document, node: yaml.Node, subject: str) -> dict[str, Any]:
    case = {}
    for name, (key, value) in document.entries(node, subject).items():
        case[check_name(name, f"{document.at(key)}: {subject}")] = document.value(value, f"{subject}: {name!r}")
    return case


def _csv_cases(path: Path, text: str) -> list[dict[str, Any]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    cases = []
    line = 1
    try:
        for row in reader:
            if row and not names:
                names = _header(row, f"{path}:{line}")
            elif row:
                cases.append(_row(row, names, f"{path}:{line}"))
            # A quoted cell may take several lines.
            line = reader.line_num + 1
    except csv.Error as error:
        raise SpecError(f"{path}:{line}: invalid CSV: {error}; write quotes within a quoted cell twice") from None
    if not cases:
        raise SpecError(
            f"{path}: only a header, at least one row is needed; write a row of values for {', '.join(names)}"
        )
    return cases


def _header(row: list[str], at: str) -> list[str]:
    names = [cell.strip() for cell in row]
    separator = next((mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]), None)
    if separator:
        raise SpecError(
            f"{at}: the header {shown(row[0])} has no comma; separate cells by commas in place of {separator!r}"
        )
    for name in names:
        check_name(name, f"{at}: header")
        if names.count(name) > 1:
            raise SpecError(f"{at}: the header names {name!r} twice; remove one of the columns")
    return names


def _row(row: list[str], names: list[str], at: str) -> dict[str, Any]:
    if len(row) != len(names):
        raise SpecError(
            f"{at}: the row has {len(row)} cells, the header names {len(names)} ({', '.join(names)}); "
            "add or remove cells, and quote a cell that holds a comma"
        )
    cells = (typed(cell.strip(), f"{at}: {name!r}") for name, cell in zip(names, row, strict=True))
    return {name: plain(value, f"{at}: {name!r}") for name, value in zip(names, cells, strict=True)}
