"""A module that was edited after its import is named, with what differs."""

import importlib
import os
import sys
import types
from pathlib import Path

import pytest

from sparktrain.usercode.module_edits import check_edited

SOURCE = "RATE = 1\ndef same(x):\n    return x\nclass Net:\n    def call(self, x):\n        return x * 2\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "edited_beside", None)
    del sys.modules["edited_beside"]
    file = tmp_path / "edited_beside.py"
    file.write_text(SOURCE)
    importlib.import_module("edited_beside")
    return file


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("x * 2", "x * 3", "Net.call() differs"),
        ("RATE = 1", "RATE = 2", "RATE differs"),
        ("RATE", "# a comment\n\nRATE", ""),
        ("RATE", "(", ""),
    ],
)
def test_what_differs_is_named(
    before: str, after: str, named: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(SOURCE.replace(before, after))
    check_edited(["edited_beside.py", "not_loaded/__init__.py"])
    assert (f"{path} was edited after this process imported it" in caplog.text) is bool(named)
    assert named in caplog.text


def test_modules_that_do_not_travel_are_left_out(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(SOURCE.replace("x * 2", "x * 3"))
    monkeypatch.setitem(sys.modules, "in_no_file", types.ModuleType("in_no_file"))  # as a folder without __init__.py
    check_edited(["elsewhere.py", "in_no_file/part.py"])
    assert not caplog.text


def test_a_file_that_is_gone_is_left_out(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.remove(path)
    check_edited(["edited_beside.py"])
    assert not caplog.text
