"""The page about installation and the package agree on the extras, and every command that installs one is valid."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
_INSTALLED = re.compile(r"(?:sparktrain|\.)\[([a-z0-9, ]+)\]")


def test_the_table_of_extras_is_that_of_the_package() -> None:
    page = (ROOT / "docs" / "installation.md").read_text("utf-8")
    table = page[page.index("## Extras") :].split("\n## ", 2)[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`([a-z0-9]+)`", cell)]
    assert len(named) == len(set(named))
    assert sorted(named) == sorted(EXTRAS)


def test_every_extra_that_docs_messages_and_examples_install_exists() -> None:
    places = [
        ROOT / "README.md",
        *(path for folder in ("docs", "examples", "sparktrain", "scripts") for path in (ROOT / folder).rglob("*")),
    ]
    named = {
        extra.strip()
        for path in places
        if path.suffix in (".md", ".py", ".sh", ".ipynb")
        for extras in _INSTALLED.findall(path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert {"spark", "pandas", "tensorflow", "search"} <= named
    assert named <= set(EXTRAS)


def test_spark_and_pandas_are_extras_and_no_requirement() -> None:
    assert not [text for text in PROJECT["dependencies"] if re.match("pyspark|pandas", text)]
    names = [re.split("[<>]", text)[0] for text in EXTRAS["spark"]]
    assert names == ["pyspark[connect]", "sparktrain[pandas]", "pandas"]


def test_what_make_installs_has_every_extra_that_tests_need() -> None:
    (ours,) = (text for text in EXTRAS["dev"] if text.startswith("sparktrain["))
    assert set(ours[len("sparktrain[") : -1].split(",")) == set(EXTRAS) - {"dev", "horovod", "torch", "trainers", "gp"}
    locked = (ROOT / "constraints.txt").read_text("utf-8")
    for extra in ("spark", "pandas", "dev"):
        for text in EXTRAS[extra]:
            name = re.split(r"[\[<>=]", text)[0]
            assert name == "sparktrain" or re.search(rf"^{name}(\[[a-z]+\])?==", locked, re.MULTILINE | re.IGNORECASE)
    of_torch = (ROOT / "constraints-torch.txt").read_text("utf-8")
    for text in [*EXTRAS["torch"], *EXTRAS["trainers"]]:
        assert re.search(rf"^{text.partition('>')[0]}==", of_torch, re.MULTILINE)
