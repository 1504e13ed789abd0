"""The site works without a network, and its generated pages show what the code defines."""

import re
from pathlib import Path

import pytest

from scripts.check_site import fetched, problems
from scripts.notebooks import cells, notebook, with_cells
from scripts.site_pages import changelog_page, command_line_page, example_page, examples
from sparktrain.cli.command_table import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="http://badges.example/x.svg">',
        "<style>@import 'https://fonts.example/css';</style>",
        '<p style="background: url(https://cdn.example/x.png)"></p>',
        '<pre class="mermaid"><code>graph</code></pre>',
    ],
)
def test_external_resources_of_a_page_are_found(html: str) -> None:
    assert len(fetched(f"<html>{html}</html>")) == 1


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://spark.apache.org">Spark</a>',
        '<script src="assets/x.js"></script>',
        '<link rel="canonical" href="https://docs.example/page">',
        "<code>url(https://cdn.example/x.png)</code>",
    ],
)
def test_links_and_local_files_are_allowed(html: str) -> None:
    assert fetched(html) == []


def test_pages_and_styles_below_the_site_are_checked(tmp_path: Path) -> None:
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "page.html").write_text('<script src="https://cdn.example/x.js"></script>')
    (tmp_path / "style.css").write_text("@font-face { src: url('https://fonts.example/x.woff2') }")
    assert list(problems(tmp_path)) == [
        "guide/page.html fetches https://cdn.example/x.js",
        "style.css fetches https://fonts.example/x.woff2",
    ]


def test_the_command_line_page_has_every_command_and_option() -> None:
    page = command_line_page()
    sections = page.split("\n## sparktrain ")[1:]
    assert [section.partition("\n")[0] for section in sections] == list(COMMANDS)
    sweep = next(section for section in sections if section.startswith("sweep\n"))
    assert "| `--grid NAME=V1,V2` | Try every combination of these. Repeatable. |" in sweep
    assert "| `--quiet`, `-q` | Show no progress. |" in sweep
    assert "`--mode max\\|min`" in sweep
    assert "| 3 | " in sweep


def test_links_of_the_changelog_lead_to_pages_of_the_site() -> None:
    targets = re.findall(r"\]\(([^)#]+)", changelog_page())
    assert len(targets) > 20
    assert [target for target in targets if "://" not in target and not (ROOT / "docs" / target).is_file()] == []


def test_each_example_is_a_page() -> None:
    assert [source.stem for source in examples()] == sorted(path.stem for path in (ROOT / "examples").rglob("*.py"))
    source = examples()[0]
    assert source.read_text() in example_page(source)


def test_an_example_with_cells_is_a_page_of_text_and_code() -> None:
    page = example_page(ROOT / "examples" / "churn.py")
    assert page.startswith("# Which customers leave?\n")
    assert page.count("```python\n") == page.count("\n```\n") > 5
    assert "# %%" not in page


@pytest.mark.parametrize("source", with_cells(), ids=lambda source: source.stem)
def test_each_notebook_has_the_cells_of_its_program_and_no_outputs(source: Path) -> None:
    assert source.with_suffix(".ipynb").read_text() == notebook(source.read_text())
    code = [cell.source for cell in cells(source.read_text()) if not cell.is_text]
    assert re.search(r"\bst\.(run|sweep)\(", "\n".join(code))


def test_no_notebook_lacks_its_program() -> None:
    assert [path.with_suffix(".ipynb") for path in with_cells()] == sorted((ROOT / "examples").rglob("*.ipynb"))
