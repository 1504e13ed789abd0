"""What a run was made of, in few lines: spaces and rules as a call writes them, one row for each dataset."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sparktrain as st
from sparktrain.config.stoppers import encoded, rule_text, rules_of
from sparktrain.runs.run_differences import compare_runs, read_sources
from sparktrain.search.space import cases, grid
from sparktrain.search.space_json import node_texts, to_document
from sparktrain.views.report.reading import read_document
from sparktrain.views.report.views.comparison_view import comparison_of
from sparktrain.views.report.views.environment_view import EnvironmentView, environment_view
from sparktrain.views.report.views.run_inputs import RunInputs
from tests.unit.driver.stored import HandClock, ScriptedRun, looked_at


def view(folder: Path, data: dict[str, Any] | None = None, **options: Any) -> EnvironmentView:
    run = ScriptedRun(folder, **options).begin()
    plan = run.plan if data is None else msgspec.structs.replace(run.plan, data=data)
    return environment_view(RunInputs(view=looked_at(run), plan=plan, now=0.0))


def test_twenty_columns_are_one_row(tmp_path: Path) -> None:
    columns = {f"x{number}": "int64" for number in range(20)} | {"y": "double"}
    data = {
        "train": {"kind": "dataframe", "columns": columns, "key": "id"},
        "test": {"kind": "parquet", "columns": {}, "rows": 7},
    }
    found = view(tmp_path / "runs", data)
    assert "data" not in found.facts
    train, test = found.data
    assert [(group.type, len(group.names)) for group in train.columns] == [("int64", 20), ("double", 1)]
    assert train.summary == "dataframe, 21 columns, key id"
    assert train.columns_text.startswith("int64 x0, x1, x2")
    assert (test.rows, test.summary) == (7, "parquet, 7 rows, 0 columns")


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (st.ASHA(most=27), "asha(most=27)"),
        ("asha:most=27,promote=true", "asha(most=27, promote=True)"),
        (["median", st.ASHA()], "median, asha"),
        ((), ""),
    ],
)
def test_rules_are_as_a_call_writes_them(tmp_path: Path, rules: Any, text: str) -> None:
    assert rule_text(encoded(rules_of(rules))) == text
    facts = {fact.name: fact.value for fact in view(tmp_path / "runs", stopper=rules_of(rules)).facts["options"]}
    assert facts.get("stopper", "") == text


def test_rules_of_a_newer_version_are_shown_as_they_are_stored() -> None:
    assert rule_text([{"type": "newest", "most": 3}]) == '[{"type":"newest","most":3}]'
    assert rule_text(None) == ""


def test_a_comparison_and_a_difference_show_rules_alike(tmp_path: Path) -> None:
    runs = [
        ScriptedRun(tmp_path, name, stopper=rules_of(rule)).begin()
        for name, rule in (("a", "asha:most=9"), ("b", "asha:most=27"))
    ]
    compared = comparison_of([read_document(run.directory, HandClock()) for run in runs])
    assert [each.values for each in compared.differences if each.name == "options: stopper"] == [
        ("asha(most=9)", "asha(most=27)")
    ]
    lines = compare_runs(*(read_sources(run.place) for run in runs)).sections["options"]
    assert lines == ["stopper: asha(most=9) -> asha(most=27)"]


def test_a_space_is_as_a_call_writes_it() -> None:
    space = st.space(
        lr=st.loguniform(1e-5, 0.1), units=[64, 256], epochs=10,
        optimizer={"name": st.choice(["sgd", "adam"]), "momentum": st.when(lambda p: True, st.uniform(0, 1))},
    )  # fmt: skip
    assert node_texts(json.loads(json.dumps(to_document(space, None)))) == {
        "lr": "loguniform(1e-05, 0.1)", "units": "[64, 256]", "epochs": "10",
        "optimizer.name": 'choice(["sgd", "adam"])', "optimizer.momentum": "uniform(0, 1), under a condition",
    }  # fmt: skip
    assert node_texts(to_document(grid({"lr": [0.1, 0.2]}), None)) == {"lr": "[0.1, 0.2]"}
    assert node_texts(to_document(cases([{"lr": 0.1}]), None)) == {}
