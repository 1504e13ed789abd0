"""The page of a report: what protects its reader, and what odd runs look like."""

import base64
import hashlib
import json
import math
import random
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sparktrain import cli
from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.results.stored_result import load
from sparktrain.results.sweep_result import SweepResult
from sparktrain.views.report.html import SCRIPTS, report_html
from sparktrain.views.report.reading import read_document
from sparktrain.views.report.writing import write_report
from tests.unit.driver.stored import HandClock, ScriptedRun, spoil, typical

HOSTILE = "</script><img src=x onerror=alert(1)>"


def html_of(directory: str) -> str:
    return report_html(read_document(directory, HandClock())).decode()


def inline(html: str) -> dict[str, Any]:
    """The document that the page holds."""
    found = re.search(r'<script type="application/json" id="document">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else(tmp_path: Path) -> None:
    html = html_of(typical(tmp_path / "runs").directory)
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert found is not None
    policy = dict(each.strip().split(" ", 1) for each in found[1].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert len(hashes) == 2
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", html), "nothing is fetched"


@pytest.mark.long
def test_a_report_of_a_hundred_trials_is_small(tmp_path: Path) -> None:
    chance = random.Random(1)
    run = ScriptedRun(tmp_path / "runs", total=100).begin()
    run.add(*({"lr": 10 ** chance.uniform(-4, 0), "units": chance.randint(1, 256)} for _ in range(100)))
    for trial in range(100):
        run.form(trial)
        run.note(trial, *range(1, 21), accuracy=chance.random())
        run.succeed(trial, accuracy=chance.random(), loss=chance.random())
    run.end()
    assert len(html_of(run.directory)) < 256 * 1024


def test_a_template_of_the_page_ends_on_its_line() -> None:
    """Comments and indentation are left out of a report: no text may lie over several lines."""
    for part in SCRIPTS:
        source = (files("sparktrain.views.report") / "assets" / part).read_text(encoding="utf-8")
        assert [line for line in source.splitlines() if line.count("`") % 2] == [], part


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs", total=2).begin()
    run.add({HOSTILE: HOSTILE}, {"lr": "\u2028" + "x" * 200 + "🚀"})
    run.form(0)
    run.fail(0, f"ValueError: {HOSTILE}")
    run.form(1)
    run.log(1, f"{HOSTILE}\n")
    run.succeed(1, accuracy=0.5)
    html = html_of(run.directory)
    assert HOSTILE not in html
    document = inline(html)
    assert document["trials"][0]["params"] == {HOSTILE: HOSTILE}
    assert document["trials"][1]["params"]["lr"].endswith("x🚀")


def test_values_at_the_ends_of_the_range_of_floats(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs").begin()
    run.add(*({"lr": value} for value in (1e-300, 1e300, 0.1, 0.2)))
    for trial, value in enumerate((1e300, -1e300, math.nan, math.inf)):
        run.form(trial)
        run.note(trial, 1, 2, accuracy=value)
        run.succeed(trial, accuracy=value)
    run.end()
    document = inline(html_of(run.directory))
    assert [row["metrics"]["accuracy"] for row in document["trials"]] == [1e300, -1e300, None, None]
    assert document["headline"]["best"]["trial"] == 0


@pytest.mark.parametrize("started", [False, True])
def test_a_run_without_trials_has_a_page(tmp_path: Path, started: bool) -> None:
    run = ScriptedRun(tmp_path / "runs")
    if started:
        run.begin()
    document = inline(html_of(run.directory))
    assert document["trials"] == []
    assert document["headline"]["best"] is None


def test_what_is_no_run_and_where_no_file_can_be_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = typical(tmp_path / "runs")
    with pytest.raises(RunDirectoryError, match="is no run directory"):
        write_report([str(tmp_path)], tmp_path / "r.html")
    with pytest.raises(SpecError, match="is in no folder that exists"):
        write_report(["/nowhere"], tmp_path / "missing" / "r.html")
    with pytest.raises(SpecError, match="is a folder"):
        write_report(["/nowhere"], tmp_path)
    with pytest.raises(SpecError, match="27 runs do not fit on one page"):
        write_report([run.directory] * 27)
    monkeypatch.chdir(tmp_path)
    result = load(run.directory)
    assert isinstance(result, SweepResult)
    assert result.report() == Path("mnist-report.html")
    assert (tmp_path / "mnist-report.html").read_bytes().startswith(b"<!doctype html>")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_two_runs_are_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directories = []
    for name, lr in (("monday", 0.1), ("tuesday", 0.2)):
        run = ScriptedRun(tmp_path / "runs", name, total=1, max_retries=3 if name == "monday" else 5).begin()
        run.add({"lr": lr, "units": 8})
        run.form(0)
        run.note(0, 1, accuracy=lr)
        run.note(0, 2, accuracy=2 * lr)
        run.succeed(0, accuracy=2 * lr)
        run.end()
        directories.append(run.directory)
    assert cli.main(["report", *directories, "--out", str(tmp_path / "both.html"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"path": str(tmp_path / "both.html")}
    document = inline((tmp_path / "both.html").read_text())
    assert [each["letter"] for each in document["runs"]] == ["A", "B"]
    assert {each["name"]: each["values"] for each in document["differences"]}["options: max_retries"] == ["3", "5"]
    assert {each["name"]: each["values"] for each in document["best_params"]} == {"lr": [0.1, 0.2], "units": [8, 8]}
    assert [each["y"] for each in document["curves"][0]["lines"]] == [[0.1, 0.2], [0.2, 0.4]]
    assert [each["y"] for each in document["history"]] == [[0.2], [0.4]]


def test_the_command_names_what_it_cannot_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "is no run directory" in capfd.readouterr().err
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "no" / "r.html")]) == 2
    assert "--out" in capfd.readouterr().err


def test_a_corrupt_journal_is_named_and_what_came_before_is_shown(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    spoil(tmp_path / "runs" / "mnist" / "journal" / "batch-0001-00000003")
    document = inline(html_of(run.directory))
    [problem] = document["headline"]["problems"]
    assert problem.startswith("the journal is corrupt, so that what came after that is not shown")
    assert "batch-0001-00000003" in problem
    assert {row["status"] for row in document["trials"]} == {"queued"}, "no trial had started by then"
