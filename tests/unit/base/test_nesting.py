"""Calls that each of their own trials would repeat are refused before anything starts, with the next step."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.base.nesting import MEMBER_KEY
from sparktrain.errors import FunctionError, NestedCallError
from sparktrain.usercode.target import resolve

CALLS: dict[str, Callable[[], Any]] = {
    "sweep": lambda: st.sweep(print, {"x": [1]}, metric="y", mode="max"),
    "launch": lambda: st.launch(None, print, {"x": [1]}),
    "run": lambda: st.run(print, workers=1, backend="none"),
    "resume": lambda: st.resume("nowhere"),
    "extend": lambda: st.extend("nowhere", trials=1),
    "refit": lambda: st.refit("nowhere", workers=1),
    "pool": lambda: st.pool(agents=1),
}
WRITTEN = {
    "sweep": 'st.sweep(train, {"lr": [0.1]}, metric="y", mode="max")',
    "launch": 'st.launch(None, train, {"lr": [0.1]})',
    "run": 'st.run(train, {"lr": 0.1}, workers=1, backend="none")',
    "resume": 'st.resume("nowhere")',
    "extend": 'st.extend("nowhere", trials=1)',
    "refit": 'st.refit("nowhere", workers=1)',
    "pool": "st.pool(agents=1)",
}
PROGRAM = "import sparktrain as st\n\ndef train(lr):\n    return {{'y': lr}}\n\nr = {call}\n"


@pytest.mark.parametrize("call", CALLS)
def test_a_call_within_a_trial_or_a_process_that_one_starts_is_refused(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMBER_KEY, "1")
    with pytest.raises(NestedCallError, match=rf"sparktrain\.{call}\(\) is called within a trial.*__name__"):
        CALLS[call]()


@pytest.mark.parametrize("call", WRITTEN)
def test_a_call_on_the_module_level_of_the_file_that_is_named_is_refused_and_shown(call: str, tmp_path: Path) -> None:
    file = tmp_path / f"program_{call}.py"
    file.write_text(PROGRAM.format(call=WRITTEN[call]))
    with pytest.raises(FunctionError) as caught:
        resolve(f"{file}:train")
    message = str(caught.value)
    step = "`if __name__ == '__main__':`"
    assert re.search(rf"program_{call}.py: sparktrain\.{call}\(\) is called while .* {step}", message)
    assert f"line 6, in <module>\n    r = {WRITTEN[call].split('(')[0]}" in message


def test_the_command_line_reports_it_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readme_program.py").write_text(PROGRAM.format(call=WRITTEN["sweep"]))
    assert cli.main(["sweep", "readme_program.py:train", "--grid", "lr=0.1", "--metric", "accuracy"]) == 2
    assert "write the call below `if __name__ == '__main__':`" in capfd.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} <= {"readme_program.py", "__pycache__"}


def test_a_call_in_a_module_imported_for_its_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "program_imported.py").write_text(PROGRAM.format(call=WRITTEN["sweep"]))
    with pytest.raises(NestedCallError, match="while module 'program_imported', which has the training function"):
        importlib.import_module("program_imported")


def test_calls_are_allowed_after_the_import(tmp_path: Path) -> None:
    file = tmp_path / "program_plain.py"
    file.write_text("def train(lr):\n    return lr\n")
    resolve(f"{file}:train")
    with pytest.raises(st.RunDirectoryError, match="nowhere"):
        CALLS["resume"]()
