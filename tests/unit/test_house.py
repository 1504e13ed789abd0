"""The figures of the tree: what counts, on small sources."""

import ast
from pathlib import Path
from traceback import FrameSummary

import pytest
from grimp import ImportGraph

from scripts.house import (
    GENERATED,
    MEMBER_OPTION,
    PACKAGE,
    ROOT,
    SUBJECTS,
    Figure,
    assigned_names,
    circles,
    files_with,
    frames_from,
    importers,
    is_callable,
    is_parallel,
    is_placeholder,
    measure,
)
from sparktrain.config.call_option import options_in
from sparktrain.config.gang_options import MemberKeywords


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("made = run()", ["made"]),
        ("first, (second, *rest) = values", ["first", "second", "rest"]),
        ("self.made = there[0] = run()", []),
        ("count: int = 0", ["count"]),
        ("count += 1", ["count"]),
        ("[each for each in members]", ["each"]),
        ("for rank, member in members: pass", ["rank", "member"]),
        ("with open(path) as file: pass", ["file"]),
        ("try: pass\nexcept OSError as error: pass", ["error"]),
        ("while chunk := read(): pass", ["chunk"]),
        ("def run(given): pass", []),
    ],
)
def test_names_that_are_assigned(source: str, names: list[str]) -> None:
    assert [name for node in ast.walk(ast.parse(source)) for name in assigned_names(node)] == names


@pytest.mark.parametrize(
    ("name", "placeholder"), [("each", True), ("_made", True), ("member", False), ("made_at", False)]
)
def test_placeholders_are_whole_words(name: str, placeholder: bool) -> None:
    assert is_placeholder(name) is placeholder


@pytest.mark.parametrize(
    ("source", "parallel"),
    [
        ("a, b = 1, 2", True),
        ("self.a, b = x, y", True),
        ("a, b = b, a", False),
        ("a, b = pair", False),
        ("a = 1, 2", False),
        ("a = b = 1", False),
    ],
)
def test_parallel_assignments(source: str, parallel: bool) -> None:
    [statement] = ast.parse(source).body
    assert is_parallel(statement) is parallel


@pytest.mark.parametrize(
    ("source", "annotated"),
    [
        ("def run(then: Callable[[], None] | None): pass", 1),
        ("then: list[Callable[[], None]] = []", 1),
        ("def run(count: int, *, name) -> Callable[[], None]: pass", 0),
        ("Join = Callable[[], None]", 0),
    ],
)
def test_callables_of_parameters_and_fields(source: str, annotated: int) -> None:
    assert sum(map(is_callable, ast.walk(ast.parse(source)))) == annotated


def test_inherited_docstrings_and_messages_of_membership() -> None:
    figures = measure(['class Standing(Message):\n    """See base class."""\n', 'class Healing:\n    """See it."""\n'])
    assert (figures["inherited"], figures["membership"]) == (1, 1)


def test_subjects_name_modules_of_the_tree() -> None:
    paths = [ROOT / PACKAGE / name.replace(".", "/") for names in SUBJECTS.values() for name in names]
    assert [path for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())] == []


def test_importers_are_outside_of_their_subject() -> None:
    graph = ImportGraph()
    for importer, module in [("a", "b.c"), ("b.d", "b.c"), ("e", "bc"), ("f", "g"), ("h", "a")]:
        graph.add_import(importer=f"{PACKAGE}.{importer}", imported=f"{PACKAGE}.{module}")
    assert importers(graph, ("b", "g")) == {f"{PACKAGE}.a", f"{PACKAGE}.f"}


def test_fields_and_protocols_of_classes() -> None:
    fields = "\n".join(f"    field_{number}: int" for number in range(13))
    wide = f"class Wide:\n{fields}\n    limit: ClassVar[int] = 1\n"
    figures = measure([wide, f"class Reader(Protocol[T]):\n{fields}\n", "class Refused(ProtocolError): pass\n"])
    assert (figures["wide"], figures["widest"], figures["protocols"]) == (1, 13, 1)


def test_shares_are_of_all_sources() -> None:
    figures = measure(["# why\nmade = 1  # not in a line of its own\nx, y = 1, 2\n", "# ---- divider\nfound = 2\n"])
    assert figures["placeholders"] == 50
    assert figures["parallel"] == pytest.approx(1000 / 3)
    assert figures["comments"] == 200
    assert figures["lines"] == 5


def test_circles_of_modules() -> None:
    graph = ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]:
        graph.add_import(importer=importer, imported=imported)
    assert circles(graph) == [["a", "b", "c"]]


def test_files_with_an_option(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "config").mkdir(parents=True)
    (package / GENERATED).write_text("log_limit: int")
    (package / "catalog.py").write_text("log_limit: int = option()")
    (package / "log.py").write_text("path = 'log.txt'")
    (package / "runner.py").write_text("limit = spec.log_limit_bytes")
    assert [path.name for path in files_with("log_limit", package)] == ["catalog.py", "runner.py"]


def test_the_option_that_is_counted_is_one_of_members() -> None:
    assert MEMBER_OPTION in options_in(MemberKeywords)


def test_frames_of_the_package_from_a_function_on() -> None:
    places = [
        (ROOT / PACKAGE / "base" / "boundary.py", "call"),
        (ROOT / PACKAGE / "api.py", "sweep"),
        (Path("/usr/lib/python3/contextlib.py"), "inner"),
        (ROOT / PACKAGE / "driver" / "launch.py", "launch"),
    ]
    stack = [FrameSummary(str(path), 1, name) for path, name in places]
    assert frames_from("api.sweep", stack) == ["api.sweep", "launch.launch"]


def test_a_figure_is_compared_as_it_is_printed() -> None:
    most = Figure(name="most", bound=0.5, goal=0.1)
    assert most.holds(0.54)
    assert not most.holds(0.56)
    least = Figure(name="least", bound=10, goal=10, at_least=True)
    assert least.holds(9.96)
    assert not least.holds(9.9)
