"""YAML and JSON files as nodes with line numbers. Only plain data is constructed, so no tag can run code."""

import json
from pathlib import Path
from typing import Any

import yaml

from sparktrain.config.param_values import MAX_VALUE_DEPTH, plain, shown, typed
from sparktrain.errors import SpecError

MAX_FILE_BYTES = 4 * 2**20
MAX_REPEATED = 50_000
"""Limit of values repeated by aliases: a short file can expand to billions."""

_PLAIN = "plain"
_TEXT = "tag:yaml.org,2002:str"
_TAGS = {_PLAIN, _TEXT, "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}


class _Loader(yaml.BaseLoader):
    """Leaves scalars untyped, because YAML 1.1 reads 1e-3 as text and no as False; marks plain ones."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: bool | tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return _PLAIN
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]  # absent from the stubs


class Document:
    """One file. Every method raises SpecError, with file and line, for what breaks a rule."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._node_ids: set[int] = set()
        self._repeated = 0
        self.root = self._compose(text)

    def at(self, node: yaml.Node) -> str:
        """File and line of `node`, for the start of a message."""
        return f"{self.path}:{node.start_mark.line + 1}"

    def entries(self, node: yaml.Node, subject: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The mapping at `node`: for each key the nodes of key and value."""
        self._check(node)
        if not isinstance(node, yaml.MappingNode):
            raise SpecError(
                f"{self.at(node)}: {subject} is {self.shown(node)}, names with values are expected: write 'name: value'"
            )
        nodes: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            self._check(key)
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError(f"{self.at(key)}: a key of {subject} is {self.shown(key)}; keys are text")
            name = _joined(key.value)
            if name in nodes:
                first = nodes[name][0].start_mark.line + 1
                raise SpecError(f"{self.at(key)}: key {name!r} was given on line {first} already; remove one of them")
            nodes[name] = (key, value)
        return nodes

    def items(self, node: yaml.Node, subject: str) -> list[yaml.Node]:
        """The nodes of the list at `node`."""
        self._check(node)
        if not isinstance(node, yaml.SequenceNode):
            raise SpecError(
                f"{self.at(node)}: {subject} is {self.shown(node)}, a list is expected; write [{self._inside(node)}]"
            )
        if not node.value:
            raise SpecError(
                f"{self.at(node)}: {subject} is an empty list, at least one entry is needed; add one or remove it"
            )
        return list(node.value)

    def value(self, node: yaml.Node, subject: str) -> Any:
        """The value of `node` as plain data."""
        return plain(self._data(node, subject), f"{self.at(node)}: {subject}")

    def shown(self, node: yaml.Node) -> str:
        """`node` for a message."""
        if isinstance(node, yaml.ScalarNode):
            return shown(node.value) if node.tag == _TEXT else shown(node.value)[1:-1] or "empty"
        return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"

    def _inside(self, node: yaml.Node) -> str:
        return node.value[:40] if isinstance(node, yaml.ScalarNode) and node.value else "value, value"

    def _data(self, node: yaml.Node, subject: str, depth: int = 0) -> Any:
        self._check(node)
        if depth > MAX_VALUE_DEPTH:  # as in a list that holds an alias of itself
            raise SpecError(f"{self.at(node)}: {subject} is nested deeper than {MAX_VALUE_DEPTH} levels; use fewer")
        if isinstance(node, yaml.MappingNode):
            return {
                key: self._data(value, subject, depth + 1) for key, (_, value) in self.entries(node, subject).items()
            }
        if isinstance(node, yaml.SequenceNode):
            return [self._data(item, subject, depth + 1) for item in node.value]
        text = _joined(node.value)
        return text if node.tag == _TEXT else typed(text, f"{self.at(node)}: {subject}")

    def _check(self, node: yaml.Node) -> None:
        self._repeated += id(node) in self._node_ids
        self._node_ids.add(id(node))
        if self._repeated > MAX_REPEATED:
            raise SpecError(
                f"{self.at(node)}: aliases repeat more than {MAX_REPEATED:,} values; list fewer, or write cases as CSV"
            )
        if node.tag not in _TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise SpecError(f"{self.at(node)}: tag {tag} is not supported, values are plain data; remove the tag")

    def _compose(self, text: str) -> yaml.Node:
        is_json = self.path.suffix.lower() == ".json"
        if is_json:
            self._check_json(text)
            text = text.replace("\t", " ")  # blanks to JSON, which has no raw tab within text, but an error to YAML
        try:
            root = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise SpecError(
                f"{self.path}:{line}: invalid YAML: {error.problem}; indent with spaces, and quote text that holds "
                "one of : # { [ , & * ! | > ' \" % @ `"
            ) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise SpecError(f"{self.path}:{line}: invalid YAML: {error.reason}; remove the character") from None
        except RecursionError:
            raise SpecError(
                f"{self.path}: nested too deeply to be read; use at most {MAX_VALUE_DEPTH} levels"
            ) from None
        if root is None:
            raise SpecError(f"{self.path}: the file has only comments; write a key such as 'grid:'")
        return root

    def _check_json(self, text: str) -> None:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError(
                f"{self.path}:{error.lineno}: invalid JSON: {error.msg} (column {error.colno}); correct it, or name "
                "the file .yaml, which allows comments and text without quotes"
            ) from None
        except RecursionError:
            raise SpecError(
                f"{self.path}: nested too deeply to be read; use at most {MAX_VALUE_DEPTH} levels"
            ) from None


def _joined(text: str) -> str:
    """`text` with surrogate pairs, which JSON's escapes spell, as the one character that they mean."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
