"""What a function calls, in its code, in modules that are loaded, and in those that it imports when it runs."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparktrain.config.uses import RUNS_EVERYWHERE, makes_strategy, runs_everywhere

HELPER = """
import tensorflow as tf

def mirrored():
    return tf.distribute.MultiWorkerMirroredStrategy()

class Cluster:
    def start(self):
        return tf.compat.v1.train.Server(None)

def plain():
    return 1
"""


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user that is loaded, with another one beside it that is not."""
    (tmp_path / "uses_helper.py").write_text(HELPER)
    (tmp_path / "uses_late").mkdir()
    (tmp_path / "uses_late" / "__init__.py").write_text("from . import first\n")
    (tmp_path / "uses_late" / "first.py").write_text("from .second import start\nimport uses_later\n")
    (tmp_path / "uses_late" / "second.py").write_text("def start(tf): tf.train.Server(None)\n")
    (tmp_path / "uses_later.py").write_text("def make(tf): tf.distribute.ParameterServerStrategy()\n")
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))  # names count, and nothing is called
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("uses_helper")


def by_context(ctx: Any) -> None:
    ctx.strategy()


def by_itself(tf: Any) -> None:
    tf.distribute.MultiWorkerMirroredStrategy()


def serving(tf: Any) -> None:
    tf.distribute.Server(None)


def unrelated(http: Any) -> None:
    http.Server()


def late() -> None:
    from uses_late import something  # type: ignore[import-not-found]

    something()


@pytest.mark.parametrize(
    ("function", "strategy", "server"),
    [
        (by_context, True, False),
        (by_itself, True, False),
        (serving, False, True),
        (unrelated, False, False),
        (late, True, True),
        (len, False, False),
    ],
)
def test_the_code_shows_it(helper: Any, function: Callable[..., Any], strategy: bool, server: bool) -> None:
    assert makes_strategy(function) is strategy
    assert runs_everywhere(function) is server


def test_functions_of_modules_count_where_they_are_named(helper: Any) -> None:
    names = {"uses_helper": helper, "Cluster": helper.Cluster, "mirrored": helper.mirrored}

    def made(code: str) -> Any:
        exec(f"def function():\n    {code}", names)
        return names["function"]

    assert makes_strategy(made("uses_helper.mirrored()"))
    assert makes_strategy(made("mirrored()"))
    assert runs_everywhere(made("Cluster().start()"))
    assert not runs_everywhere(made("uses_helper.plain()"))


def test_an_attribute_makes_every_member_run_a_function() -> None:
    def train() -> None: ...

    setattr(train, RUNS_EVERYWHERE, True)
    assert runs_everywhere(train)


def test_a_function_within_a_closure_counts() -> None:
    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def node(ctx: Any) -> Any:
            return function(ctx)

        return node

    def starts(ctx: Any) -> Any:
        import tensorflow as tf

        return tf.distribute.Server(None)

    def starts_by_tensorflowonspark(ctx: Any) -> Any:
        return ctx.start_cluster_server()

    assert runs_everywhere(around(starts))
    assert runs_everywhere(around(starts_by_tensorflowonspark))
    assert not runs_everywhere(around(lambda ctx: ctx.Server))
