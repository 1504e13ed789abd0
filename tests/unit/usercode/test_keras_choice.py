"""Which backend of Keras a function chooses: found without running it, and only where that is certain."""

import functools
import importlib
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.continuation.program import FunctionProgram
from sparktrain.usercode.keras_choice import keras_choice, keras_choice_in
from sparktrain.usercode.target import Target, resolve


def script(source: str, **names: Any) -> Callable[..., Any]:
    """The function `train` of a script with this source."""
    file = f"<script {hash(source)}>.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {"__name__": "__main__", **names}
    exec(compile(source, file, "exec"), space)
    return space["train"]  # type: ignore[no-any-return]


CHOICES = {
    "import os\n    os.environ['KERAS_BACKEND'] = 'jax'": "jax",
    "import os\n    os.environ.setdefault('KERAS_BACKEND', 'torch')": "torch",
    "import os\n    os.environ.update(KERAS_BACKEND='jax')": "jax",
    "import os\n    os.environ.update({'A': '1', 'KERAS_BACKEND': 'jax'})": "jax",
    "import os\n    os.environ |= {'KERAS_BACKEND': 'jax'}": "jax",
    "import os\n    os.putenv('KERAS_BACKEND', 'jax')": "jax",
    "environ['KERAS_BACKEND'] = BACKEND": "jax",
    "name = 'KERAS_BACKEND'\n    environ[name] = 'jax'": "jax",
    "import keras\n    keras.config.set_backend('jax')": "jax",
    "with open('x'):\n        environ['KERAS_BACKEND'] = 'jax'": "jax",
    "prepare()": "torch",
    "environ['KERAS_BACKEND'] = 'tensorflow'": "tensorflow",
    "environ['KERAS_BACKEND'] = x": None,
    "if x:\n        environ['KERAS_BACKEND'] = 'jax'": None,
    "if x:\n        prepare()": None,
    "environ['KERAS_BACKEND'] = 'jax'\n    environ['KERAS_BACKEND'] = 'tensorflow'": None,
    "return environ['KERAS_BACKEND'] == 'jax'": None,
    "return environ.get('KERAS_BACKEND', 'jax')": None,
    "child = dict(environ)\n    child['KERAS_BACKEND'] = 'jax'": None,
    "import matplotlib\n    matplotlib.set_backend('agg')": None,
    "pass": None,
}


@pytest.mark.parametrize(("body", "backend"), CHOICES.items(), ids=CHOICES)
def test_what_a_function_chooses(body: str, backend: str | None) -> None:
    source = (
        "from os import environ\nBACKEND = 'jax'\ndef prepare():\n    environ['KERAS_BACKEND'] = 'torch'\n"
        f"def train(x=1):\n    {body}\n"
    )
    choice = FunctionProgram(script(source)).keras_choice()
    assert (choice and choice.backend) == backend
    stored = keras_choice_in(f"BACKEND = 'jax'\ndef train(x=1):\n    {body}\n")
    assert (stored and stored.backend) == (None if body == "prepare()" else backend)


def test_the_line_is_named_beneath_partials_and_wrappers() -> None:
    source = "import os\ndef train(x):\n    a = 1\n    os.environ['KERAS_BACKEND'] = 'jax'\n"
    choice = keras_choice(Target(functools.partial(script(source), 1)))
    assert choice is not None
    assert choice.place.endswith(".py:4")


def test_a_module_that_the_function_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "choosing_top.py").write_text("import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras\n")
    (tmp_path / "choosing_late.py").write_text("import os\ndef use():\n    os.environ['KERAS_BACKEND'] = 'jax'\n")
    monkeypatch.syspath_prepend(tmp_path)
    top, late = script("def train():\n    import choosing_top\n"), script("def train():\n    import choosing_late\n")
    found = keras_choice(Target(top))
    assert found is not None
    assert (found.backend, found.place) == ("jax", "choosing_top.py:2")
    assert keras_choice(Target(late)) is None


def test_a_function_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = "import os\nos.environ.setdefault('KERAS_BACKEND', 'jax')\ndef train(): pass\n"
    (tmp_path / "choosing_cli.py").write_text(source)
    monkeypatch.setenv("KERAS_BACKEND", "")
    target = resolve(f"{tmp_path}/choosing_cli.py:train")
    monkeypatch.delitem(sys.modules, "choosing_cli")
    importlib.invalidate_caches()
    found = keras_choice(target)
    assert found is not None
    assert (found.backend, found.place) == ("jax", "choosing_cli.py:2")
