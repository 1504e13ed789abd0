"""Links of the documentation resolve, and its examples are valid."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown.extensions.toc import slugify

import sparktrain
from tests.unit.messages import VARYING, templates

ROOT = Path(__file__).parents[2]
KNOWN = {*sparktrain.__all__, *dir(sparktrain)}
WITH_TENSORFLOW = {"Warmup"}
"""Names that load TensorFlow on import: tests/training/test_schedule.py imports them."""
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md", *sorted(DOCS.rglob("*.md"))]
MADE = {"reference/command-line-options.md", "changelog.md", "examples/"}
"""Pages of the site that scripts/site_pages.py generates."""
FIRST_PATH = ["installation.md", "tutorial.md", "training-function.md", "results.md"]
"""Pages for data scientists."""
PAGES_WITH_SAMPLES = [
    "search.md",
    "search-reference.md",
    "repeats.md",
    "resume.md",
    "training-function.md",
    "yarn.md",
    "code-and-environment.md",
]
"""Pages that show what the package prints, in indented blocks."""
NO_SAMPLES = ("sparktrain ", "spark-submit ", "lr-sweep: succeeded.")
"""Commands, and a summary, which consists of short parts."""
TERMS = {
    "agent", "attempt", "barrier", "checkpoint", "chief", "collective", "coordinator", "corrupt", "decommission",
    "dataset", "evaluator", "fencing", "gang", "generation", "group", "heartbeat", "host cache", "journal", "lease",
    "manifest", "materialise", "member", "owner", "pool", "share", "window",
    "preemption", "ps", "put-if-absent", "rank", "rendezvous", "resume", "retry", "ring", "role", "run", "slot",
    "snapshot", "store", "straggler", "sweep", "term", "trial", "worker", "zygote", "container loss", "node loss",
    "run directory", "training function",
}  # fmt: skip
"""Terms that the glossary must define."""
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(((?:[\w./-]+\.md)?)#([^)]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_resolve(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    files = [page.parent / target for target in targets]
    made = {(DOCS / name).resolve() for name in MADE}
    assert not [file for file in files if not file.exists() and file.resolve() not in made]


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site has them."""
    code = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", code.sub("", page.read_text()), re.MULTILINE)
    return {slugify(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).replace("`", ""), "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_resolve(page: Path) -> None:
    links = [(page.parent / target if target else page, anchor) for target, anchor in ANCHOR.findall(page.read_text())]
    written = [(target.resolve(), anchor) for target, anchor in links if target.resolve().is_file()]
    assert [(target.name, anchor) for target, anchor in written if anchor not in anchors(target)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_pages_parses_and_uses_public_names(page: Path) -> None:
    for code in re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), flags=re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("st", "sparktrain")
            ):
                assert node.attr in KNOWN, f"{page.name} uses sparktrain.{node.attr}"


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in KNOWN - WITH_TENSORFLOW if not hasattr(sparktrain, name)] == []
    assert KNOWN >= WITH_TENSORFLOW


def test_completion_finds_what_users_call() -> None:
    found = [name for name in dir(sparktrain) if not name.startswith("_")]
    assert {"sweep", "run", "launch", "pool", "resume", "grid", "Warmup", "TrainContext"} <= set(found)
    assert [name for name in found if name.endswith("Error")] == [
        "InfraError", "RunFailedError", "SparktrainError", "UserError",
    ]  # fmt: skip
    assert set(found) <= KNOWN


def navigation() -> list[str]:
    """The pages that mkdocs.yml names, in their order."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def pages(entry: Any) -> Iterator[str]:
        match entry:
            case str():
                yield entry
            case dict():
                yield from pages(list(entry.values()))
            case list():
                for each in entry:
                    yield from pages(each)

    return list(pages(config["nav"]))


def test_the_navigation_has_every_page_once() -> None:
    found = navigation()
    assert len(found) == len(set(found))
    assert set(found) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | MADE


def test_pages_for_data_scientists_are_short_and_linked_from_the_first_page() -> None:
    lines = [len((DOCS / name).read_text().splitlines()) for name in FIRST_PATH]
    assert sum(lines) <= 400, dict(zip(FIRST_PATH, lines, strict=True))
    numbered = re.findall(r"^\d\. \[[^\]]+\]\(([^)]+)\)", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert numbered == FIRST_PATH


def test_each_sample_of_output_has_words_of_the_package() -> None:
    longest = {max(text.split(VARYING), key=len).strip() for text in templates()}
    words = {part for part in longest if " " in part and len(part) >= 12}
    samples = [(page, " ".join(block.split())) for page in PAGES_WITH_SAMPLES for block in indented(page)]
    printed = [(page, text) for page, text in samples if not text.startswith(NO_SAMPLES)]
    assert len(printed) >= 8
    assert [sample for sample in printed if not any(part in sample[1] for part in words)] == []


def indented(page: str) -> list[str]:
    """The indented blocks of a page."""
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(), flags=re.DOTALL)
    return re.findall(r"(?:^    \S.*\n(?:^    .*\n)*)", text, re.MULTILINE)


def quotes() -> list[str]:
    """The messages on the troubleshooting page, each on one line."""
    page = (DOCS / "troubleshooting.md").read_text()
    return [" ".join(text.split()) for text in re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)]


def test_each_message_on_the_troubleshooting_page_exists() -> None:
    known = templates()
    assert len(quotes()) > 25
    assert [quote for quote in quotes() if not any(quote in text for text in known)] == []


def test_the_glossary_defines_each_term_once_and_in_order() -> None:
    terms = re.findall(r"^## (.+)$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) == len(set(terms))
    assert {term.lower() for term in terms} >= TERMS


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_glossary_is_linked(page: str) -> None:
    assert "glossary.md" in (ROOT / page).read_text()
