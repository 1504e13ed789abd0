"""Which variables of the environment code may set, by its source and by its byte code."""

from collections.abc import Callable

import pytest

from sparktrain.usercode.environment_writes import ANY
from sparktrain.usercode.imports import imports_of_function
from sparktrain.usercode.source_imports import imports_of_source

BODIES = [
    ("os.environ['A'] = '1'", {"A"}),
    ("del os.environ['A']", {"A"}),
    ("os.environ.setdefault('A', '1'); os.environ.pop('B', None)", {"A", "B"}),
    ("os.putenv('A', '1'); os.unsetenv('B')", {"A", "B"}),
    ("from os import environ; environ['A'] = '1'", {"A"}),
    ("os.environ[name] = '1'", {ANY}),
    ("os.environ[f'A{name}'] = '1'", {ANY}),
    ("os.environ.update(name)", {ANY}),
    ("os.putenv(name, '1')", {ANY}),
    ("settings = os.environ; settings['A'] = '1'", {ANY}),
    ("name(os.environ)", {ANY}),
    ("return os.environ", {ANY}),
    ("from os import environ as settings; settings[name] = '1'", {ANY}),
    ("print(os.environ['A'], os.environ.get('B'), 'C' in os.environ, os.getenv('D'))", set()),
    ("for key in os.environ: print(key, 'A')", set()),
    ("print(dict(os.environ), os.environ.copy(), sorted(os.environ))", set()),
    ("print({**os.environ, 'A': '1'})", set()),
    ("name({'A': '1'}); print('A')", set()),
]


@pytest.mark.parametrize(("body", "variables"), BODIES)
def test_of_a_source(body: str, variables: set[str]) -> None:
    source = f"import os\ndef train(name):\n    {body}\n"
    assert imports_of_source(source.encode()).variables == variables


@pytest.mark.parametrize(("body", "variables"), BODIES)
def test_of_a_function(body: str, variables: set[str]) -> None:
    assert imports_of_function(function(f"def train(name):\n    {body}\n")).variables == variables


@pytest.mark.parametrize(
    ("body", "variables"),
    [
        ("os.environ.update({'A': '1'}, B='2')", {"A", "B"}),
        ("os.environ.update(**name)", {ANY}),
        ("os.environ |= {'A': '1'}", {"A"}),
        ("os.environb[b'A'] = b'1'", {"A"}),
        ("from os import environ as settings; settings['A'] = '1'", {"A"}),
        ("subprocess.run([], env=os.environ | {'A': '1'})", set()),
        ("subprocess.run([], env=os.environ)", set()),
        ("print({key: value for key, value in os.environ.items()}, [key for key in os.environ])", set()),
    ],
)
def test_what_only_a_source_shows(body: str, variables: set[str]) -> None:
    source = f"import os, subprocess\ndef train(name):\n    {body}\n"
    assert imports_of_source(source.encode()).variables == variables


def test_functions_within_a_function_count() -> None:
    source = "def train():\n    def inner():\n        os.environ['A'] = '1'\n    return inner\n"
    assert imports_of_function(function(source)).variables == {"A"}


def function(source: str) -> Callable[..., object]:
    """The function `train` of a notebook cell."""
    import os

    space: dict[str, object] = {"__name__": "__main__", "os": os}
    exec(compile(source, "<cell>", "exec"), space)
    return space["train"]  # type: ignore[return-value]
