"""What the user's modules import, as one call sees them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktrain.usercode import module_zip
from sparktrain.usercode.imports import Sources


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A local package with one module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "ship_read"
    folder.mkdir()
    (folder / "__init__.py").write_text("import numpy\n")
    return folder


def test_a_call_reads_each_file_once(package: Path) -> None:
    sources = Sources()
    before = sources.imports_of_modules(["ship_read"]).modules
    (package / "__init__.py").write_text("import pandas\n")
    (package / "later.py").write_text("import scipy\n")
    assert sources.imports_of_modules(["ship_read"]).modules == before == {"numpy"}
    assert sources.imports_of_file(package / "__init__.py").modules == {"numpy"}


def test_the_next_call_reads_them_again(package: Path) -> None:
    assert Sources().imports_of_modules(["ship_read"]).modules == {"numpy"}
    (package / "__init__.py").write_text("import pandas\n")
    assert Sources().imports_of_modules(["ship_read.some.part"]).modules == {"pandas"}


def test_modules_that_import_each_other_are_followed_once(package: Path) -> None:
    (package.parent / "ship_other.py").write_text("import ship_read\nimport scipy\n")
    (package / "__init__.py").write_text("import ship_other\n")
    sources = Sources()
    assert sources.imports_of_modules(["ship_read"]).modules == {"ship_other", "ship_read", "scipy"}
    assert sources.local_names(["ship_read.x", "numpy", "os"]) == ["ship_read"]


def test_unchanged_modules_are_compressed_once(package: Path) -> None:
    first = module_zip.archive_of([package])
    assert module_zip.archive_of([package]) is first
    (package / "__init__.py").write_text("import scipy\n")
    assert module_zip.archive_of([package]) != first
