"""docs/development.md lists the cases of `make test-all` alone, and the Makefile the tests of `make test-core`."""

import re
from pathlib import Path

import pytest

from scripts import all_table

TESTS = Path(__file__).parents[1]
FILE = re.compile(r"`(\w+(?:/\w+)*/test_\w+)`")
MAKEFILE = TESTS.parent / "Makefile"


@pytest.fixture(scope="module")
def markers() -> list[all_table.Marker]:
    return all_table.markers(TESTS)


def test_each_marker_names_its_case_and_what_covers_it(markers: list[all_table.Marker]) -> None:
    assert len(markers) > 100
    assert [f"{each.file}:{each.line}" for each in markers if not (each.case and each.covered_by)] == []


def test_the_page_has_the_table_of_the_markers(markers: list[all_table.Marker]) -> None:
    page = all_table.PAGE.read_text()
    assert all_table.current(page) == all_table.table(markers), "make tables writes it"


def test_each_file_of_the_table_exists(markers: list[all_table.Marker]) -> None:
    listed = {name for each in markers for name in FILE.findall(each.row)}
    assert len(listed) > 100
    assert sorted(name for name in listed if not (TESTS / f"{name}.py").exists()) == []


def test_the_markers_of_tests_parameters_and_modules_are_read(tmp_path: Path) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "test_a.py").write_text(
        "import pytest\n"
        'pytestmark = [pytest.mark.all(case="a module", covered_by="`unit/test_b`: "\n"two texts")]\n'
        'MANY = [pytest.param(9, marks=() if 0 else pytest.mark.all(case="many", covered_by="few"))]\n'
        "@pytest.mark.all\n"
        "def test_bare() -> None: ...\n"
    )
    module, parameter, bare = all_table.markers(tmp_path)
    assert module.row == "| `spark/test_a` | a module | `unit/test_b`: two texts |\n"
    assert (parameter.case, parameter.covered_by) == ("many", "few")
    assert (bare.line, bare.case, bare.covered_by) == (5, "", "")


def test_a_row_must_be_written_into_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n\n{all_table.table([])}\nbelow\n")
    monkeypatch.setattr(all_table, "PAGE", page)
    all_table.main()
    assert all_table.current(page.read_text()) == all_table.table(all_table.markers(TESTS))
    assert page.read_text().startswith("above\n\n")
    assert page.read_text().endswith("\nbelow\n")


def test_the_tests_of_make_test_core_exist() -> None:
    files, cases = core_tests(MAKEFILE.read_text().replace("\\\n", " "))
    assert len(files) > 10
    assert [str(file) for file in files if not file.is_file()] == []
    assert {file.parent.name for file, _ in cases} == {"spark", "training", "faults"}
    assert [name for file, name in cases if f"def {name}(" not in file.read_text()] == []


def core_tests(makefile: str) -> tuple[list[Path], list[tuple[Path, str]]]:
    """The files of the ring `process`, and the cases of the outer rings by their files."""
    [subjects] = re.findall(r"^CORE_PROCESS := (.*)$", makefile, re.MULTILINE)
    cases = re.findall(r"tests/(\w+/test_\w+\.py)::(\w+)", makefile)
    return [TESTS / "process" / f"test_{name}.py" for name in subjects.split()], [(TESTS / f, n) for f, n in cases]
