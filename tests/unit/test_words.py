"""The word linter finds words to avoid and misspelt words, and leaves code alone."""

from pathlib import Path

import pytest

from scripts.words import hits, main

PAGE = Path("page.md")
MODULE = Path("module.py")


@pytest.mark.parametrize(
    "line",
    [
        "The driver is told of it.",
        "Nobody knows, and the README says so.",
        "Training began at step 0.",
        "The trial is run again elsewhere.",
        "The run goes on from its checkpoint.",
        "There is no sign of life.",
        "A file is created once, by whomever.",
        "The checkpoint is damaged.",
        "The store keeps its word.",
        "What YARN takes away comes back.",
    ],
)
def test_finds_words_to_avoid(line: str) -> None:
    assert [hit.line for hit in hits(PAGE, f"# Title\n\n{line}\n")][:1] == [3]


@pytest.mark.parametrize(
    "line", ["The coordinator retries the trial.", "The heartbeat stops.", "The journal is corrupt.", "It resumes."]
)
def test_takes_the_words_of_the_field(line: str) -> None:
    assert hits(PAGE, line) == []


def test_code_of_a_page_is_not_prose() -> None:
    assert hits(PAGE, "Call `tell()`:\n\n```python\nwho.told()\n```\n\n    printed: it says so\n") == []
    assert [hit.line for hit in hits(PAGE, "```\ntold\n```\ntold\n")] == [4]


def test_of_python_comments_and_texts_are_prose() -> None:
    code = '"""Nobody."""\n\nreport = begun(f"{told} is lost")  # whose\nraise ValueError("it goes on")\n'
    assert [(hit.line, hit.word) for hit in hits(MODULE, code)] == [(1, "Nobody"), (3, "whose"), (4, "goes on")]


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("def goes_on(): ...", "goes on"),
        ("class ToldMember: ...", "Told"),
        ("def wait(heeded): ...", "heeded"),
        ("self._told_to_wait = 1", "told"),
        ("for begun in runs: ...", "begun"),
    ],
)
def test_names_that_python_code_defines_are_read_as_words(code: str, word: str) -> None:
    assert [(hit.line, hit.word) for hit in hits(MODULE, f"\n{code}\n")] == [(2, word)]


@pytest.mark.parametrize("code", ["def on_train_begin(): ...", "study.tell(trial)", "def retell(): ...", "x = told"])
def test_names_that_others_define_are_left_alone(code: str) -> None:
    assert hits(MODULE, code) == []


def test_of_other_files_comments_are_prose() -> None:
    assert [hit.line for hit in hits(Path("run.sh"), "say hello\n# it says hello\n")] == [2]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one clean page."""
    monkeypatch.setattr("scripts.words.ROOT", tmp_path)
    monkeypatch.setattr("scripts.words.covered", lambda: sorted(tmp_path.glob("*.md")))
    monkeypatch.setattr("sys.argv", ["words"])
    (tmp_path / "page.md").write_text("The coordinator retries the trial.\n")
    return tmp_path


def test_a_clean_tree_passes(tree: Path) -> None:
    assert main() == 0


@pytest.mark.parametrize("line", ["It is told.", "It retries teh trial."])
def test_a_word_to_avoid_and_a_misspelt_one_fail(tree: Path, line: str) -> None:
    (tree / "new.md").write_text(f"{line}\n")
    assert main() == 1


def test_a_test_alone_is_not_searched_for_misspelt_words(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "tests").mkdir()
    test = tree / "tests" / "test_new.py"
    test.write_text("# Not an option: trian.\n")
    (tree / "other.md").write_text("It retries teh trial.\n")
    monkeypatch.setattr("sys.argv", ["words", str(test)])
    assert main() == 0
