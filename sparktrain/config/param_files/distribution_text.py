"""Distributions as text, on the command line and in YAML: `loguniform(1e-4, 1e-1)`. Nothing is evaluated."""

import ast
import re
from typing import Any

from sparktrain.config.distribution import KINDS, Distribution, build_distribution
from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.errors import SpecError

_CALL = re.compile(r"\s*([A-Za-z_][\w.]*)\s*\(.*\)\s*", re.DOTALL)
_MOST_TEXT = 2**20


def is_call(value: object) -> bool:
    """Whether `value` is text that looks like a call, and so like a distribution."""
    return isinstance(value, str) and len(value) <= _MOST_TEXT and _CALL.fullmatch(value) is not None


def parsed(text: str, subject: str) -> Distribution:
    """The distribution that `text` spells as in Python, with or without `st.` before it. Raises SpecError.

    >>> print(parsed("st.loguniform(1e-4, high=1e-1)", "--space"))
    loguniform(0.0001, 0.1)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(f"{subject}: {shown(text)} cannot be read; write it as in Python: {_example(text)}") from None
    if not isinstance(tree, ast.Call):
        raise SpecError(
            f"{subject}: {shown(text)} is no distribution; write one of {', '.join(KINDS)}, as in uniform(0, 1)"
        )
    name = ast.unparse(tree.func).removeprefix("sparktrain.").removeprefix("st.")
    if name not in KINDS:
        raise SpecError(
            f"{subject}: there is no distribution {name!r}{did_you_mean(name, KINDS)}; it is one of {', '.join(KINDS)}"
        )
    try:
        return build_distribution(name, _arguments(tree, name, subject), subject)
    except SpecError as error:
        text = str(error)
        raise SpecError(text if text.startswith(subject) else f"{subject}: {text}") from None


_NAMES = {"quniform": ("low", "high", "q"), "choice": ("values",), "normal": ("mean", "sd")}
"""Names of arguments; the others have `low` and `high`."""


def _arguments(call: ast.Call, name: str, subject: str) -> list[Any]:
    arguments = [_literal(argument, subject) for argument in call.args]
    named = {keyword.arg: _literal(keyword.value, subject) for keyword in call.keywords}
    for parameter in _NAMES.get(name, ("low", "high"))[len(arguments) :]:
        if parameter in named:
            arguments.append(named.pop(parameter))
    if named:
        raise SpecError(f"{subject}: {name}() has no argument {next(iter(named))!r}; write {_example(name)}")
    return arguments


def _literal(node: ast.expr, subject: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        step = f"write text in quotes: '{node.id}'" if isinstance(node, ast.Name) else "write numbers, text, or a list"
        raise SpecError(f"{subject}: {shown(ast.unparse(node))} is no value; {step}") from None


def _example(text: str) -> str:
    return next((example for kind, example in _EXAMPLES.items() if kind in text), "loguniform(1e-4, 1e-1)")


_EXAMPLES = {
    "choice": "choice(['a', 'b'])",
    "quniform": "quniform(0, 1, 0.25)",
    "lograndint": "lograndint(16, 1024)",
    "randint": "randint(1, 8)",
    "normal": "normal(0, 0.1)",
    "loguniform": "loguniform(1e-4, 1e-1)",
    "uniform": "uniform(0, 0.5)",
}
