"""What a program assigns to modules and their objects is found by its source, and given to a fresh process."""

import copy
import importlib
import logging
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.config.gang_spec import ALONE
from sparktrain.config.option_catalog import CODE_BYTES
from sparktrain.driver.continuation.program import FunctionProgram
from sparktrain.protocol import sent_script
from sparktrain.protocol.settings import script_settings
from sparktrain.usercode.assigned_values import assigned
from sparktrain.usercode.imports import Sources
from tests.unit.scripted import cell

ACME = """
class Settings:
    def __init__(self, **values):
        vars(self).update(values)
    def merge(self, **values):
        vars(self).update(values)
class Slotted:
    __slots__ = ("size",)
class Config(dict):
    def __setattr__(self, name, value):
        self[name] = value
class Kind:
    width = 1
settings = Settings(lr=0.1, pid=4, inner=Settings(momentum=0.9))
slotted = Slotted()
slotted.size = 1
config = Config(lr=0.1, pid=4)
RATE = 1
NAMES = ["a"]
OPTIONS = {"a": 1, "b": 2}
def scale(x):
    return x
def configure(settings):
    settings.lr = 9
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "acme_rates.py").write_text(ACME)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("acme_rates")
    del sys.modules["acme_rates"]


@pytest.fixture
def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Execute a script as the program of this process; what it assigns by place."""

    def executed(source: str) -> dict[str, Any]:
        path = tmp_path / "script.py"
        path.write_text(source)
        script = types.ModuleType("__main__")
        script.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", script)
        exec(compile(source, str(path), "exec"), vars(script))
        values: dict[str, Any] = assigned("train", Sources()).get("acme_rates", {})
        return values

    return executed


SCRIPTS = {
    "an attribute of a name": ("from acme_rates import settings\nsettings.lr = 5.0", "settings.lr"),
    "of a module": ("import acme_rates as a\na.settings.inner.momentum = 5.0", "settings.inner.momentum"),
    "by another name": ("import acme_rates\ns = acme_rates.settings\ns.lr = 5.0", "settings.lr"),
    "a slot": ("from acme_rates import slotted\nslotted.size += 4", "slotted.size"),
    "a variable": ("import acme_rates\nacme_rates.RATE = 7", "RATE"),
    "a class": ("from acme_rates import Kind\nKind.width = 3", "Kind.width"),
    "an item": ("import acme_rates\nacme_rates.OPTIONS['a'] = 3", "OPTIONS['a']"),
    "a computed item": ("import acme_rates\nfor name in 'ab': acme_rates.OPTIONS[name] = 3", "OPTIONS"),
    "a list": ("from acme_rates import NAMES\nNAMES.append('c')", "NAMES"),
    "a method": ("from acme_rates import settings\nsettings.merge(lr=5.0)", "settings"),
    "an argument": ("import acme_rates\nacme_rates.configure(acme_rates.settings)", "settings"),
    "setattr": ("import acme_rates\nsetattr(acme_rates.settings, 'lr', 5.0)", "settings.lr"),
    "computed names": ("from acme_rates import config\nfor n in ('lr',): setattr(config, n, 5.0)", "config"),
    "in a function": ("def main():\n    from acme_rates import settings\n    settings.lr = 5.0\nmain()", "settings.lr"),
    "a function": ("import acme_rates\nacme_rates.scale = lambda x: x * 2", "scale"),
}


@pytest.mark.parametrize(("source", "name"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_trial_has_what_the_program_has_assigned(
    source: str,
    name: str,
    acme: types.ModuleType,
    execute: Callable[[str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = execute(source)
    assert name in values
    changed = _all_of(acme)
    fresh = importlib.reload(acme)
    assert _all_of(fresh) != changed
    failures: list[str] = []
    script_settings.apply({"acme_rates": values}, lambda setting, error: failures.append(f"{setting}: {error}"))
    assert not failures
    assert _all_of(fresh) == changed


def _all_of(acme: types.ModuleType) -> list[Any]:
    settings = acme.settings
    state = {**vars(settings), "inner": vars(settings.inner)}
    held = (state, acme.slotted.size, dict(acme.config), acme.RATE, acme.NAMES, acme.OPTIONS, acme.Kind.width)
    return [*copy.deepcopy(held), acme.scale(3)]


def test_cells_share_their_names(acme: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(user_ns={"In": ["import acme_rates", "%magic", "acme_rates.RATE = 7"]})
    monkeypatch.setattr("sparktrain.usercode.assigned_values.ipython_shell", lambda: shell)
    assert list(assigned("train", Sources())["acme_rates"]) == ["RATE"]


@pytest.mark.parametrize(
    "source",
    [
        "from acme_rates import settings\ndef train():\n    settings.lr = 3\nprint(train)",
        "import acme_rates\nacme_rates.OPTIONS.get('a')\nprint(acme_rates.OPTIONS)",
        "import os\nos.environ['ACME'] = '1'\nimport json\njson.x = 3",
        "import acme_rates\nclass A: pass\na = A()\na.x = 3",
    ],
    ids=["only in the training function", "only read", "of Python", "of the script itself"],
)
def test_what_is_left_out(source: str, acme: types.ModuleType, execute: Callable[[str], dict[str, Any]]) -> None:
    assert execute(source) == {}


@pytest.mark.parametrize(
    "line", ["from acme_rates import (\n    settings,\n)", "from acme_rates import settings # noqa"]
)
def test_modules_of_the_program_assign_too(
    line: str, acme: types.ModuleType, execute: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_rates.py").write_text(f"{line}\nsettings.lr = 6.0")
    monkeypatch.syspath_prepend(tmp_path)
    # All tests of this process are modules of the program.
    monkeypatch.setattr("sparktrain.usercode.assigned_values.MOST_CHARS", 2**30)
    values = execute("import beside_rates")
    del sys.modules["beside_rates"]
    assert list(values) == ["settings.lr"]


def test_an_object_of_another_class_is_refused(acme: types.ModuleType, execute: Callable[[str], Any]) -> None:
    values = execute("from acme_rates import settings\nsettings.merge(lr=5.0)")
    acme.settings = acme.Slotted()
    failures: list[str] = []
    script_settings.apply({"acme_rates": values}, lambda setting, error: failures.append(f"{setting}: {error}"))
    [failure] = failures
    assert "it is acme_rates.Slotted here, and acme_rates.Settings in the driver" in failure


def test_a_secret_and_what_cannot_be_pickled_stay_here(
    acme: types.ModuleType,
    execute: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("ACME_KEY", "hunter2-of-the-driver")
    execute(
        "import acme_rates, os, threading\nacme_rates.RATE = os.environ['ACME_KEY']\n"
        "acme_rates.lock = threading.Lock()\nacme_rates.settings.lr = 5.0\nacme_rates.settings.name = 'a text'"
    )
    monkeypatch.setattr(sent_script, "_names", None)
    monkeypatch.setattr(script_settings, "changed", dict)  # other tests of this process may have set some
    with caplog.at_level(logging.WARNING):
        packed = FunctionProgram(cell("def train(): return 1")).packed(ALONE, {}, CODE_BYTES, [])
    [line] = packed.notes
    # Other tests of this process may have left assigned values, which follow in the line.
    assert "acme_rates settings.lr=5.0, settings.name" in line.split(": ", 1)[1].split("; ")
    assert "setting acme_rates settings.lr=5.0" in packed.parts
    assert "trials do not get acme_rates RATE as it is here" in caplog.text
    assert "trials do not get acme_rates lock as it is here" in caplog.text
    assert b"hunter2" not in packed.code.function
    assert "hunter2" not in caplog.text + line
