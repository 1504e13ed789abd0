"""Tables, commands and names in docs/ are those of the code."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from sparktrain import errors
from sparktrain.cli.command_table import application
from sparktrain.config.store_address import DEFAULT_DIR
from sparktrain.state.outcome import FailureKind
from sparktrain.state.restart import EXCUSED_LIMIT
from sparktrain.state.trial import TrialStatus
from tests.unit.ops.doctor.seen import SLOT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(DOCS.glob("*.md"))]
PAGES += sorted(DOCS.glob("reference/*.md"))
ERRORS = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
MAKEFILE = (ROOT / "Makefile").read_text()


def rows(page: str, columns: int) -> Iterator[tuple[str, ...]]:
    """The rows of a page's tables with so many columns."""
    for line in (DOCS / f"{page}.md").read_text().splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == columns:
            yield tuple(cell.strip() for cell in cells)


@cache
def commands() -> dict[str, Any]:
    """The commands of the command line by name."""
    group: Any = typer.main.get_command(application())
    return dict(group.commands)


def written_commands(page: str) -> Iterator[list[str]]:
    """The words of each line of sparktrain in blocks, and between backticks, without a prompt."""
    text = page.replace("\\\n", " ")
    for line in [*re.findall(r"`(sparktrain [^`\n]+)`", text), *re.findall(r"^ *\$? *(sparktrain .+)$", text, re.M)]:
        try:
            yield shlex.split(line, comments=True)
        except ValueError:  # a sentence with an apostrophe
            continue


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_flags_of_commands_exist(page: Path) -> None:
    assert unknown_flags(page.read_text()) == []


def test_an_unknown_flag_is_found() -> None:
    assert unknown_flags("`sparktrain ls DIR --json` and\n\n    sparktrain resume DIR --nope 3\n") == [
        ("resume", "--nope")
    ]
    assert sum(len(list(written_commands(page.read_text()))) for page in PAGES) > 150


def unknown_flags(page: str) -> list[tuple[str, str]]:
    """Flags that a page gives to a command which has no such flag."""
    unknown = []
    for words in written_commands(page):
        names = [word for word in words[1:] if word in commands()]
        if words[1] not in commands():
            continue
        options = {
            opt for name in names for each in commands()[name].params for opt in (*each.opts, *each.secondary_opts)
        }
        words = words[: words.index("--")] if "--" in words else words  # what follows is for a script
        flags = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        unknown += [(words[1], flag) for flag in sorted(flags - options - {"--help"})]
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+)(?:%)?:", MAKEFILE, re.M))
    benchmarks = {path.stem.replace("_", "-") for path in (ROOT / "benchmarks").glob("*.py")}
    used = set(re.findall(r"(?:`|^ *\$? *)make ([a-z][a-z_-]*)", page.read_text(), re.M))
    known = targets | {f"bench-{name}" for name in benchmarks | {name.replace("-", "_") for name in benchmarks}}
    assert used - known == set()


def test_each_benchmark_has_a_row_and_a_file() -> None:
    lists = re.findall(r"^(?:TORCH_)?BENCHMARKS := ((?:.*\\\n)*.*)$", MAKEFILE, re.M)
    assert len(lists) == 2
    targets = set(" ".join(lists).replace("\\", " ").split())
    described = {re.sub("`", "", name) for name, _ in rows("benchmarks", 2) if re.fullmatch(r"`\w+`", name)}
    assert described == targets | {"soak", "gpu_trials", "goodput", "kubernetes"}
    assert [name for name in targets if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []


def test_each_error_is_described_as_in_its_docstring() -> None:
    table = {name.strip("`"): (parents, meaning) for name, parents, meaning in rows("names", 3) if "Error" in name}
    expected = {
        name: (
            ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base in ERRORS.values() or base is Exception),
            (error.__doc__ or "").splitlines()[0].rstrip("."),
        )
        for name, error in ERRORS.items()
    }
    assert table == expected


def test_the_tree_of_errors_is_that_of_the_classes() -> None:
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for indent, name in re.findall(r"^    ([ |`-]*)(\w+Error)\b", errors.__doc__ or "", re.M):
        depth = len(indent) // 4
        path[depth:] = [name]
        parents[name] = path[depth - 1] if depth else None
    first = {name: error.__bases__[0].__name__ for name, error in ERRORS.items() if name != "SparktrainError"}
    assert parents == first | {"SparktrainError": None}


def test_the_ends_of_a_trial_are_complete() -> None:
    table = [(status, kinds) for status, kinds, _ in rows("training-function", 3) if status != "`status`"]
    final = {status for status in TrialStatus if status.final}
    assert {status for status, _ in table} >= {str(status) for status in final}
    kinds = {kind for _, cell in table for kind in re.findall(r"`(\w+)`", cell)}
    assert kinds == {str(kind) for kind in FailureKind}


def test_each_slot_report_of_the_doctor_is_described() -> None:
    text = (DOCS / "doctor.md").read_text().partition("## JSON")[2]
    assert [name for name in SLOT.document() if not re.search(rf'[`"]{name}[`"]', text)] == []


def test_the_failures_that_spark_must_allow_are_those_of_the_page() -> None:
    text = " ".join((DOCS / "yarn.md").read_text().split())
    assert f"{EXCUSED_LIMIT + 1} more than `max_retries`" in text
    assert "`conf/yarn-gpu.conf` and `conf/yarn-cpu.conf` set both to 1000" in text
    for name in ("yarn-gpu.conf", "yarn-cpu.conf"):
        values = dict(re.findall(r"^(spark\.\S+)\s+(\S+)$", (ROOT / "conf" / name).read_text(), re.M))
        assert (values["spark.task.maxFailures"], values["spark.executor.maxNumFailures"]) == ("1000", "1000")


def test_the_params_of_stages_and_their_defaults_are_those_of_the_page() -> None:
    from sparktrain.ml import KerasEstimator

    estimator = KerasEstimator(model=lambda: None)
    found = {param.name: estimator.getOrDefault(param) for param in estimator.params if estimator.isDefined(param)}
    table: dict[str, str] = {}
    for names, defaults, _ in rows("ml-pipeline", 3):
        parts = re.findall(r"`(\w+)`", names)
        values = defaults.replace("`", "").split(", ")
        table |= dict(zip(parts, values if len(values) == len(parts) else [""] * len(parts), strict=True))
    shown = {"true": True, "none": None, "": None} | {str(value): value for value in (0, 1, 32, 1024)}
    shown |= {"{}": {}, "[]": [], DEFAULT_DIR: DEFAULT_DIR}
    table.pop("param", None)
    assert set(table) >= {param.name for param in estimator.params}
    wrong = {
        name: (text, found.get(name))
        for name, text in table.items()
        if text and shown.get(text, text) != found.get(name)
    }
    assert wrong == {}
