"""The word linter finds words to avoid, leaves code alone, and its list can only shrink."""

from pathlib import Path

import pytest

from scripts.words import complaints, hits, read_ratchet, write_ratchet

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


def test_of_python_comments_and_texts_are_prose_and_names_are_not() -> None:
    code = '"""Nobody."""\n\ntold = begun(f"{told} is lost")  # whose\nraise ValueError("it goes on")\n'
    assert [(hit.line, hit.word) for hit in hits(MODULE, code)] == [(1, "Nobody"), (3, "whose"), (4, "goes on")]


def test_of_other_files_comments_are_prose() -> None:
    assert [hit.line for hit in hits(Path("run.sh"), "say hello\n# it says hello\n")] == [2]


def test_the_list_may_neither_lag_nor_grow() -> None:
    assert complaints({"a.md": 2}, {"a.md": 2}) == []
    assert "allows 2" in complaints({"a.md": 3}, {"a.md": 2})[0]
    assert "words-update" in complaints({"a.md": 1}, {"a.md": 2})[0]
    assert "allows 0" in complaints({"new.md": 1}, {})[0]
    assert "words-update" in complaints({}, {"gone.md": 1})[0]


def test_the_list_reads_back() -> None:
    assert read_ratchet(write_ratchet({"b.md": 2, "a b.py": 1, "clean.py": 0})) == {"b.md": 2, "a b.py": 1}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one page that has one word to avoid, and a list that allows it."""
    monkeypatch.setattr("scripts.words.ROOT", tmp_path)
    monkeypatch.setattr("scripts.words.RATCHET", tmp_path / "list")
    monkeypatch.setattr("scripts.words.covered", lambda: sorted(tmp_path.glob("*.md")))
    monkeypatch.setattr("sys.argv", ["words"])
    (tmp_path / "old.md").write_text("told\n")
    (tmp_path / "list").write_text("1 old.md\n")
    return tmp_path


def test_an_update_follows_a_move_and_refuses_a_sum_that_grew(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts import words

    assert words.main() == 0
    (tree / "old.md").rename(tree / "moved.md")
    assert words.main() == 1
    monkeypatch.setattr("sys.argv", ["words", "--update"])
    assert words.main() == 0
    assert (tree / "list").read_text().splitlines()[1:] == ["1 moved.md"]
    (tree / "moved.md").write_text("told and told\n")
    assert words.main() == 1
    assert (tree / "list").read_text().splitlines()[1:] == ["1 moved.md"]


def test_a_misspelt_word_fails(tree: Path) -> None:
    from scripts import words

    (tree / "old.md").write_text("told teh\n")
    assert words.main() == 1
