"""What a call reports of the settings that its trials take over, and what a resume compares."""

import csv
import decimal
import logging
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from sparktrain.config.gang_spec import ALONE
from sparktrain.config.option_catalog import CODE_BYTES
from sparktrain.driver.continuation.program import FunctionProgram, PackedProgram
from sparktrain.protocol import sent_script
from sparktrain.protocol.settings import import_paths, logging_settings, script_settings
from sparktrain.protocol.settings.script_settings import LIBRARIES, LibrarySettings
from tests.unit.scripted import cell


def packed() -> PackedProgram:
    return FunctionProgram(cell("def train(lr): return lr")).packed(ALONE, {}, CODE_BYTES, [])


@pytest.fixture
def fields() -> Iterator[None]:
    before = csv.field_size_limit(1000)
    yield
    csv.field_size_limit(before)


def test_a_line_names_what_trials_take_over(fields: None) -> None:
    with decimal.localcontext(prec=50):
        [line] = packed().notes
    assert line.startswith("trials take over the settings of this process: ")
    assert "csv field_size_limit=1000" in line
    assert "decimal prec=50" in line


def test_what_changes_results_is_a_part_of_the_code(fields: None) -> None:
    plain = packed().parts
    with decimal.localcontext(prec=50):
        parts = packed().parts
    assert set(parts) - set(plain) == {"setting decimal prec=50"}
    printed = {"numpy": {"precision": 3}, "logging": {"root": {}}, "pandas": {"display.width": 3}, "sys": {"path": []}}
    assert not [*script_settings.counted(printed)]


def test_what_cannot_be_sent_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    values = {"lock": threading.Lock(), "broken": ValueError("odd"), "whole": 3}
    monkeypatch.setitem(LIBRARIES, "csv", LibrarySettings(lambda _: values, lambda *_: None))
    assert "csv whole=3" in packed().notes[0]
    assert "trials do not get csv lock as it is here" in caplog.text
    assert "broken as it is here, so set it in the function: odd" in caplog.text


def test_a_setting_that_is_refused_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    monkeypatch.setattr(sent_script, "_names", {})
    monkeypatch.setattr(sent_script, "_notice", notices.append)
    with decimal.localcontext():
        sent_script.configure({"decimal": {"prec": 40, "unheard_of": 3}, "not_there": {"x": 1}})
        assert decimal.getcontext().prec == 40
    assert [line.partition(",")[0] for line in notices] == ["the program has set decimal unheard_of"]


def test_folders_of_the_path_that_are_not_there_stay_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    of_spark = f"{tmp_path}/spark-1f/userFiles-2e"  # PySpark adds it in each program that has a session
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), of_spark, f"{of_spark}/sent.zip"])
    assert import_paths.added()[-1] == str(tmp_path)
    import_paths.add([str(tmp_path), "/not/there", str(tmp_path / "..")])
    assert sys.path.count(str(tmp_path)) == 1
    assert "/not/there" not in sys.path


@pytest.mark.parametrize(
    ("level", "text", "taken"),
    [(logging.WARNING, None, False), (logging.WARNING, "%(name)s", True), (logging.INFO, None, True)],
)
def test_a_root_logger_as_python_has_it_is_left_out(level: int, text: str | None, taken: bool) -> None:
    root = logging.RootLogger(level)
    module = types.SimpleNamespace(root=root, _warnings_showwarning=None)
    root.manager = logging.Manager(root)  # type: ignore[misc]
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(text) if text else None)
    root.addHandler(handler)
    assert (logging_settings.ROOT in logging_settings.changed(module)) is taken
