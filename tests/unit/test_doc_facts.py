"""Messages, names and fields that pages state are those of the code; test_doc_numbers has the numbers."""

import re
from pathlib import Path

import pytest

import sparktrain
from sparktrain.config.metric_names import implied_by
from sparktrain.display.status_json import run_json, runs_json
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.report_parts import COLUMNS
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.ending import Ending
from sparktrain.testing.in_process import LocalContext
from tests.unit.driver.stored import looked_at, typical
from tests.unit.messages import templates

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {"coming-from.md", "keras3.md", "optuna.md", "tensorflowonspark.md", "tracking.md"}
"""Pages that show `ctx`, `result` and `trial` of other libraries."""
PRINTED = [
    ("gangs-reference.md", "the driver has no Horovod, which is faster for large models"),
    ("gangs.md", ", from its checkpoint of step "),
    ("data-reference.md", ": writing the DataFrame to "),
    ("data-reference.md", " has columns that cannot become tensors"),
    ("data-reference.md", "a tensor has no decimals; select cast("),
    ("data-reference.md", "a tensor has no maps; select its entries as columns, such as "),
    ("sessions.md", "entered the training function, the last with: "),
    ("sessions.md", "no member can be set up on executor host "),
    ("sessions.md", "waiting for agents (0 of "),
    ("command-line.md", ": compares trials after "),
    ("command-line.md", ", less with the stopper"),
    ("command-line.md", ": nothing was started"),
    ("command-line.md", " to each agent"),
    ("command-line.md", "imported before trials"),
    (
        "environments.md",
        "or have executors run from a pack, for which nodes need nothing: sparktrain submit --pack auto",
    ),
]
"""What pages show as output, without what varies."""


def text_of(page: str) -> str:
    """The page on one line."""
    return " ".join((DOCS / page).read_text("utf-8").split())


@pytest.mark.parametrize(("page", "fragment"), PRINTED)
def test_output_that_a_page_shows_is_in_the_source(page: str, fragment: str) -> None:
    assert fragment.strip() in text_of(page)
    assert [text for text in templates() if fragment.strip() in text]


def test_what_pages_call_on_contexts_results_and_trials_exists() -> None:
    known = {
        "ctx": {*dir(sparktrain.TrainContext), *dir(LocalContext), *LocalContext.__annotations__},
        "result": {*dir(sparktrain.SweepResult), *dir(sparktrain.RunResult)},
        "trial": {*dir(TrialResult), *TrialResult.__dataclass_fields__},
    }
    known["result"] |= {*sparktrain.SweepResult.__dataclass_fields__, *sparktrain.RunResult.__dataclass_fields__}
    unknown = {
        f"{page.name}: {subject}.{name}"
        for page in DOCS.glob("*.md")
        if page.name not in ELSEWHERE
        for subject, name in re.findall(r"\b(ctx|result|trial)\.([a-z_]+)", page.read_text("utf-8"))
        if name not in known[subject]
    }
    assert unknown == set()


def test_the_paths_of_the_layout_are_those_of_a_run() -> None:
    page = (DOCS / "run-directory.md").read_text("utf-8")
    paths = re.findall(r"^    RUN/(\S+)", page, re.MULTILINE)
    layout = RunLayout("RUN")
    assert len(paths) > 25
    assert [path for path in paths if path != "reports" and not layout.owns(f"RUN/{path}")] == []


def test_the_columns_of_reports_are_documented() -> None:
    page = (DOCS / "run-directory.md").read_text("utf-8")
    rows = page.partition("Each row is one metric")[2].partition("These are all rows")[0]
    assert re.findall(r"`([a-z]+)`", "".join(re.findall(r"^\|([^|]*)\|", rows, re.MULTILINE))) == list(COLUMNS)


def test_the_fields_of_a_live_run_are_documented(tmp_path: Path) -> None:
    view = looked_at(typical(tmp_path))
    live = run_json(view)
    section = text_of("results-json.md").partition("## A live run")[2]
    of_results = {*TrialResult.__dataclass_fields__, "log", "host"}
    fields = {*live, *live["driver"], *live["trials"][0], *runs_json([], 0)} - of_results
    missing = [field for field in fields if f"`{field}`" not in section]
    assert missing == []
    assert [ending for ending in Ending if f"`{ending}`" not in section] == []
    assert [status for status in live["counts"] if f"`{status}`" not in section] == []


@pytest.mark.parametrize(
    ("start", "end", "mode"), [("or an error (", "...)", "min"), ("well-known ones (", "...)", "max")]
)
def test_the_metrics_that_a_page_names_have_that_direction(start: str, end: str, mode: str) -> None:
    names = re.findall(r"`([^`]+)`", text_of("results.md").partition(start)[2].partition(end)[0])
    assert len(names) > 7
    assert {name: implied_by(name) for name in names} == dict.fromkeys(names, mode)
    assert implied_by("speed") is None
