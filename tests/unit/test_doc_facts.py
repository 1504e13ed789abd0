"""Numbers, messages, names and fields that pages state are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import sparktrain
from sparktrain.cli.command_table import application
from sparktrain.config.direction import implied_by
from sparktrain.display.status_json import run_json, runs_json
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.report_parts import COLUMNS
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.ending import Ending
from sparktrain.testing.in_process import LocalContext
from tests.support.sources import PACKAGE, trees_in
from tests.unit.driver.stored import looked_at, typical
from tests.unit.messages import templates

DOCS = Path(__file__).parents[2] / "docs"
MIB, GIB = 2**20, 2**30
WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 8: "eight", 10: "ten", 20: "twenty"}
NUMBERS: list[tuple[str, str, str, float]] = [
    ("stores.md", "retries for {} s (`store_timeout=`)", "config.store_address.STORE_TIMEOUT_S", 1),
    ("stores.md", "sent in parts of {} MiB", "store.objects.bucket.PART_BYTES", MIB),
    ("stores.md", "a request to an object store retries for {} s", "store.objects.object_store.PROBE_S", 1),
    ("stores.md", "once its client is open, which may take {} s", "store.objects.object_store.OPEN_S", 1),
    ("stores.md", "No request waits longer than {} s", "store.hadoop.hadoop_calls.CALL_S", 1),
    ("stores.md", "appended to every {} s or MiB", "store.hadoop.hdfs_stream.FLUSH_S", 1),
    ("stores.md", "a write after its first {} MiB", "store.hadoop.transfers.RESENT_BYTES", MIB),
    ("stores.md", "{} processes race for each", "testing.store_contract.CONTENDERS", 1),
    ("command-line.md", "looks at it each {} s", "cli.top_command.EVERY_S", 1),
    ("command-line.md", "at most every {} seconds", "display.live.STATUS_INTERVAL_S", 1),
    ("command-line.md", "a line each {} minutes", "display.live.QUIET_INTERVAL_S", 60),
    ("command-line.md", "fewer than {} columns", "display.top_screen._WIDE", 1),
    ("gangs.md", "more than {} % fewer steps", "display.gang_view.LAG", 0.01),
    ("gangs.md", "or {} times its usual step", "state.deadlines.USUAL_STEPS", 1),
    ("gangs.md", "does not answer for {} s", "driver.agent_server.LEASE_S", 1),
    ("gangs.md", "do not return within {} s", "state.run_machine.TIMEOUT_GRACE_S", 1),
    ("gangs.md", "lost agents waits {} s for others", "state.run_machine.SHRINK_AFTER_S", 1),
    ("gangs.md", "at the earliest {} s after the gang has started", "state.losses.growth.GROW_AFTER_S", 1),
    ("gangs.md", "up to {} seconds each time", "training.checkpoint.saver.SAVE_TIMEOUT_S", 1),
    ("data.md", "of {} rows or 256 MiB", "training.data.row_order.WINDOW_ROWS", 1),
    ("data.md", "of 262,144 rows or {} MiB", "training.data.row_order.WINDOW_BYTES", MIB),
    ("data.md", "refused above {} entries", "datasets.values._WIDEST_SPARSE", 1),
    ("data.md", "Its unfinished file is removed after {} hour", "datasets.host_cache._ABANDONED_S", 3600),
    ("sessions.md", "After {} short lives in a row", "driver.engines.local_restarts.MOST_SHORT_LIVES", 1),
    ("sessions.md", "of less than {} s each", "driver.engines.local_restarts.SHORT_LIFE_S", 1),
    ("sessions.md", "ends its trial within {} s", "driver.agent_server.LEASE_S", 1),
    ("sessions.md", "the driver gives up after {} s", "driver.pool.CONNECT_S", 1),
    ("sessions.md", "right versions joins within {} s", "driver.agent_server.COMPANY_S", 1),
    ("sessions.md", "Code of the newest {} calls stays", "executor.code.KEPT", 1),
    ("sessions.md", "no trial for {} s, then for 10 s, 20 s", "state.health.FIRST_BACK_OFF_S", 1),
    ("sessions.md", "After {} different trials in a row", "state.health.EXCLUDED_AFTER", 1),
    ("run-directory.md", "at most about {} MiB, which", "dataframes.frame_writer.FILE_BYTES", MIB),
    ("run-directory.md", "at most {} rows and 16 MiB", "datasets.group_file.MOST_ROWS", 1),
    ("run-directory.md", "65,536 rows and {} MiB", "datasets.group_file.MOST_BYTES", MIB),
    ("run-directory.md", "{} parts become one, and", "rundir.metric_log.FAN_IN", 1),
    ("run-directory.md", "until a part has {} MiB", "rundir.metric_log.FULL_BYTES", MIB),
    ("run-directory.md", "in the driver: the first {} MiB in memory", "driver.waiting_reports.MEMORY_BYTES", MIB),
    ("run-directory.md", "up to {} GiB after them", "driver.waiting_reports.FILE_BYTES", GIB),
    ("run-directory.md", "has {} times as many records", "driver.journal_writer.GROWTH", 1),
    ("run-directory.md", "and {} more at least", "driver.journal_writer.COMPACT_AFTER", 1),
    ("run-directory.md", "After {} s in which nothing is written", "driver.journal_writer.CHECK_S", 1),
    ("results-json.md", "(the first {} characters)", "training.extra_values.MAX_TEXT", 1),
    ("results-json.md", "objects of at most {} items", "training.extra_values.MAX_ITEMS", 1),
    ("page.md", "it is ended {} s later", "state.run_machine.TIMEOUT_GRACE_S", 1),
    ("page.md", "after a grace of {} s", "state.run_machine.TIMEOUT_GRACE_S", 1),
    ("page.md", "a connection has {} s to send its request", "webserve.web_server.HEAD_S", 1),
    ("page.md", "counted apart ({} answers at a time)", "webserve.reader_limit.MOST_ANSWERS", 1),
    ("report.md", "above {} trials, the best 50", "report.views.curves_view.MOST_LINES", 1),
    ("report.md", "the best {} and bands", "report.views.curves_view.BEST_LINES", 1),
    ("tensorboard.md", "Above {} trials only", "runs.board_feed.MOST_TRIALS", 1),
    ("tensorboard.md", "only the best {} are shown", "runs.board_feed.BEST_TRIALS", 1),
    ("tensorboard.md", "in their names) each {} s", "executor.live_events.LOOK_S", 1),
    ("tensorboard.md", "of {} files of a member", "executor.live_events.AT_ONCE", 1),
    ("notebooks.md", "repeated every {} s", "display.live.STATUS_INTERVAL_S", 1),
    ("notebooks.md", "needs sparktrain[search] and {} trials", "report.views.importance_view.LEAST_TRIALS", 1),
    ("notebooks.md", "The HTML is at most {} KB", "notebook.cards.LARGEST", 1000),
    ("notebooks.md", "that run within {} s, writes the results", "state.run_machine.KILL_GRACE_S", 1),
    ("installation.md", "Spark needs Java {} or later", "cluster.launch_warnings.LEAST_JAVA", 1),
    ("parameter-server.md", "workers wait at most {} s for it", "training.parameter_server.served_model.ANSWER_S", 1),
    ("parameter-server.md", "idle within {} s", "state.losses.member_restart.MOVE_TIMEOUT_S", 1),
    ("security.md", "They last for {} days", "protocol.certificates.VALID_DAYS", 1),
    ("security.md", "the port takes {} at a time", "protocol.gate.STRANGERS", 1),
    ("security.md", "and {} from one address", "protocol.gate.STRANGERS_OF_ADDRESS", 1),
    ("security.md", "up to {} of an address", "protocol.gate.WAITING_OF_ADDRESS", 1),
    ("security.md", "has sent nothing for {} s", "protocol.gate.SILENCE_S", 1),
    ("security.md", "not authenticated after {} s", "protocol.gate.PRECEDENCE_S", 1),
    ("security.md", "leave {} descriptors", "protocol.gate.RESERVE", 1),
    ("security.md", "to the hard one, or to {}", "protocol.gate.DESCRIPTORS", 1),
    ("security.md", "{} connections that have not", "training.parameter_server.shard_server.STRANGERS", 1),
    ("security.md", "and {} of one address", "training.parameter_server.shard_server.STRANGERS_OF_ADDRESS", 1),
    ("security.md", "the head of a request, {} at a time", "webserve.web_server.STRANGERS", 1),
    ("security.md", "at a time and {} of one address", "webserve.web_server.STRANGERS_OF_ADDRESS", 1),
    ("security.md", "for {} s at most.", "webserve.web_server.HEAD_S", 1),
    ("security.md", "a message may have {} KiB", "state.message.SMALL_BYTES", 2**10),
    ("security.md", "or one report, may have {} MiB", "state.message.LARGE_BYTES", MIB),
    ("security.md", "1 MiB and {} metrics", "training.metrics.MAX_METRICS", 1),
    ("environments.md", "after {} tasks have failed for it", "driver.spark_job.MISSING_FAILURES", 1),
]
"""Page, phrase with a place for the number, constant, and the unit of the number."""
ELSEWHERE = {"coming-from.md", "keras3.md", "optuna.md", "tensorflowonspark.md", "tracking.md"}
"""Pages that show `ctx`, `result` and `trial` of other libraries."""
PRINTED = [
    ("gangs.md", "the driver has no Horovod, which is faster for large models"),
    ("gangs.md", ", from its checkpoint of step "),
    ("data.md", ": writing the DataFrame to "),
    ("data.md", " has columns that cannot become tensors"),
    ("data.md", "a tensor has no decimals; select cast("),
    ("data.md", "a tensor has no maps; select its entries as columns, such as "),
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


@cache
def constant(name: str) -> float:
    """The value of a constant of the package, from its source: some of these modules import TensorFlow."""
    module, _, variable = name.rpartition(".")
    tree = trees_in(PACKAGE)[PACKAGE.joinpath(*module.split(".")).with_suffix(".py")]
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable
    )
    number: float = eval(compile(ast.Expression(value), name, "eval"), {"__builtins__": {}})
    return number


def written(number: float) -> list[str]:
    """How a page may write the number."""
    word = WORDS.get(int(number), "") if number == int(number) else ""
    return [f"{number:,g}", *([word, word.capitalize()] if word else ["an"] if number == 1 else [])]


@pytest.mark.parametrize(("page", "phrase", "name", "unit"), NUMBERS, ids=[f"{row[0]}-{row[2]}" for row in NUMBERS])
def test_a_number_of_a_page_is_that_of_the_code(page: str, phrase: str, name: str, unit: float) -> None:
    text = text_of(page)
    assert any(phrase.format(number) in text for number in written(constant(name) / unit)), constant(name)


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


def test_flags_of_the_commands_in_pages_exist() -> None:
    commands: dict[str, Any] = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    flags = {name: {flag for param in of.params for flag in param.opts} for name, of in commands.items()}
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    shown = [
        (page.name, name, flag)
        for page in pages
        for name, rest in re.findall(r"\bsparktrain (\w+)((?:[^`\n|]|\\\n)*)", page.read_text("utf-8"))
        if name in flags and name != "submit"
        for flag in re.findall(r"(?<!\S)--[a-z-]+", rest)
    ]
    assert len(shown) > 50
    assert [row for row in shown if row[2] not in flags[row[1]]] == []


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
    fields = {*live, *live["driver"], *live["trials"][0], *runs_json([], [])} - {*TrialResult.__dataclass_fields__}
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
