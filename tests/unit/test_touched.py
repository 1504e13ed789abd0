"""The tests that a change reaches, on small trees."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from scripts.import_map import ImportMap, read_imports
from scripts.touched import START_S, Durations, Touched, measured, renamed_since, stored_seconds
from scripts.touched_edges import ALL_TESTS, EDGES, READERS, TOOLS, WINGS
from tests.support.sources import ROOT

TREE = {
    "grove/__init__.py": '_HOMES = {\n    "plant": "grove.planting.tree",\n}\n',
    "grove/base/__init__.py": "",
    "grove/base/wings.py": '_HOMES = {\n    "Fruit": "grove.fruit",\n}\n',
    "grove/fruit.py": "from grove.planting import soil\n",
    "grove/planting/__init__.py": "",
    "grove/planting/tree.py": 'from_wing("Fruit")\n',
    "grove/planting/soil.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from grove import table\n",
    "grove/table.py": 'COMMANDS = {"dig": "planting.soil"}\n',
    "examples/orchard.py": "",
    "tests/unit/test_names.py": "import grove as g\ng.plant()\n",
    "tests/unit/test_table.py": "def test():\n    from grove.table import COMMANDS\n",
    "tests/process/test_program.py": 'START = "-m tests.process.digging"\nPAGE = "examples/orchard.py"\n',
    "tests/process/digging.py": "from grove.planting.soil import dig\n",
    "tests/process/test_beside.py": 'run("digging")\n',
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportMap:
    for path, text in TREE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return read_imports(tmp_path, "grove")


@pytest.mark.parametrize(
    ("path", "uses"),
    [
        ("grove/planting/tree.py", {"grove/planting/__init__.py", "grove/fruit.py"}),
        ("grove/planting/soil.py", {"grove/planting/__init__.py"}),
        ("grove/base/wings.py", {"grove/base/__init__.py"}),
        ("grove/table.py", {"grove/__init__.py", "grove/planting/soil.py"}),
        ("tests/unit/test_names.py", {"grove/__init__.py", "grove/planting/tree.py"}),
        ("tests/unit/test_table.py", {"grove/table.py"}),
        ("tests/process/test_program.py", {"tests/process/digging.py", "examples/orchard.py"}),
        ("tests/process/test_beside.py", {"tests/process/digging.py"}),
    ],
)
def test_a_file_uses_what_it_imports_and_what_it_names(tree: ImportMap, path: str, uses: set[str]) -> None:
    assert tree.uses[path] == uses


def test_reach_follows_the_files_of_a_folder_alone(tree: ImportMap) -> None:
    assert "grove/fruit.py" in tree.reach("tests/unit/test_names.py")
    assert tree.reach("tests/process/test_beside.py", "tests/") == {
        "tests/process/test_beside.py", "tests/process/digging.py", "grove/planting/soil.py",
    }  # fmt: skip


FILES: dict[str, set[str]] = {
    "sparktrain/__init__.py": set(),
    "sparktrain/state/__init__.py": set(),
    "sparktrain/state/gang.py": set(),
    "sparktrain/driver/pool.py": {"sparktrain/state/gang.py"},
    "sparktrain/base/clock.py": set(),
    "sparktrain/views/page/serving.py": {"sparktrain/state/gang.py"},
    "tests/unit/state/test_gang.py": {"sparktrain/state/gang.py"},
    "tests/unit/driver/conftest.py": {"sparktrain/base/clock.py"},
    "tests/unit/driver/test_pool.py": {"sparktrain/driver/pool.py"},
    "tests/unit/test_docs.py": set(),
    "tests/process/test_whole_runs.py": {"sparktrain/driver/pool.py", "sparktrain/base/clock.py"},
    "tests/process/test_serving.py": {"tests/support/readers.py"},
    "tests/process/test_live_page.py": set(),
    "tests/process/test_agent.py": set(),
    "tests/support/readers.py": set(),
}
CORE = ("tests/unit/state", "tests/process/test_agent.py", "tests/spark/test_sweep.py::test_trials")
SMOKE = {"tests/unit/state/test_gang.py", "tests/process/test_agent.py", "tests/spark/test_sweep.py::test_trials"}
SERVING = "tests/process/test_serving.py"
PAGE = "tests/process/test_live_page.py"
POOL = "tests/unit/driver/test_pool.py"
RUNS = "tests/process/test_whole_runs.py"
DOCS = {"tests/unit/test_docs.py"}


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("sparktrain/state/gang.py", {POOL, *SMOKE, *DOCS}),
        ("sparktrain/driver/pool.py", {POOL, RUNS} | SMOKE | DOCS),
        ("sparktrain/base/clock.py", {POOL, *SMOKE, *DOCS}),
        ("sparktrain/views/page/serving.py", {SERVING, PAGE} | DOCS),
        ("sparktrain/state/gone.py", SMOKE | DOCS),
        ("tests/support/readers.py", {SERVING}),
        (SERVING, {SERVING}),
        ("docs/gangs.md", DOCS),
        ("pyproject.toml", {path for path in FILES if "/test_" in path}),
    ],
)  # fmt: skip
def test_a_change_reaches_tests_by_imports_subjects_and_edges(changed: str, tests: set[str]) -> None:
    assert set(Touched(ImportMap(FILES), CORE).tests([changed])) == tests


def test_a_test_is_foreseen_where_the_package_selects_it() -> None:
    touched = Touched(ImportMap(FILES), CORE)
    assert list(touched.foreseen(["sparktrain/driver/pool.py", RUNS, "docs/gangs.md"])) == [True]
    assert list(touched.foreseen(["sparktrain/driver/pool.py", SERVING])) == [False]
    assert list(touched.foreseen([SERVING])) == []


def test_paths_of_commits_have_the_names_of_today() -> None:
    log = "@new\nR090\tb.py\tc.py\nM\td.py\n@mid\nR100\ta.py\tb.py\n@old\nM\ta.py\n@empty\n"
    assert renamed_since(log) == [("new", ["c.py", "d.py"]), ("mid", ["c.py"]), ("old", ["c.py"]), ("empty", [])]


def test_minutes_are_those_of_the_workers_and_at_least_those_of_one_for_a_ring() -> None:
    durations = Durations(
        {"tests/unit/test_a.py": 180.0, "tests/spark/test_b.py": 240.0, "tests/spark/test_c.py": 90.0}
    )
    assert durations.minutes([]) == 0
    assert durations.minutes(["tests/unit/test_a.py", "tests/unit/test_unknown.py"]) == (START_S + 60) / 60
    assert (
        durations.minutes(["tests/unit/test_a.py", "tests/spark/test_b.py", "tests/spark/test_c.py"])
        == (START_S + 330) / 60
    )


def test_seconds_come_from_a_report_of_pytest() -> None:
    report = (
        '<testsuites><testsuite><testcase classname="tests.unit.test_a" time="1.5"/>'
        '<testcase classname="tests.unit.test_a.TestB" time="2"/><testcase classname="gone" time="9"/>'
        "</testsuite></testsuites>"
    )
    assert measured(report, ["tests/unit/test_a.py"]) == {"tests/unit/test_a.py": 3.5}
    assert stored_seconds("# measured\n3.5 tests/unit/test_a.py\n") == {"tests/unit/test_a.py": 3.5}


def test_each_pattern_of_the_table_matches_a_file() -> None:
    patterns = {
        *ALL_TESTS,
        *WINGS,
        *TOOLS,
        *(pattern for sides in (*EDGES, *READERS) for side in sides for pattern in side),
    }
    folders = ("sparktrain", "tests", "docs", "examples", "benchmarks", "findings", "scripts")
    paths = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in names)] == []
