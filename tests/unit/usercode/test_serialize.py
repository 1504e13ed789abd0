"""What packed code has: the files, the digest, and the limits; process/test_packed_code calls it."""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparktrain.driver.options import SweepOptions
from sparktrain.errors import FunctionError, SpecError
from sparktrain.protocol.code_origins import NAME as ORIGINS
from sparktrain.protocol.messages import Code
from sparktrain.usercode import module_zip
from sparktrain.usercode.closure import belongs_to_driver, captures_of
from sparktrain.usercode.imports import Sources
from sparktrain.usercode.serialize import MOST_CODE_BYTES, pack
from sparktrain.usercode.target import resolve
from tests.unit.scripted import cell, of_a_script

pytestmark = pytest.mark.usefixtures("own_imports")


def write(folder: Path, name: str, content: str | bytes = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names_in(code: Code) -> list[str]:
    return [name for name in zipfile.ZipFile(io.BytesIO(code.archive)).namelist() if name != ORIGINS]


def test_the_digest_is_of_function_and_archive(tmp_path: Path) -> None:
    code = pack(resolve(f"{write(tmp_path, 'ship_digest.py', 'def train(): pass')}:train"))
    assert code.digest == hashlib.sha256(code.function + code.archive).hexdigest()


def test_the_archive_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        for name in sorted(["b.py", "a.py", "p/__init__.py", "p/z.py"], reverse=folder == "two"):
            write(tmp_path, f"{folder}/{name}", f"name = {name!r}")
    assert module_zip.archive_beside(tmp_path / "one", Sources()) == module_zip.archive_beside(
        tmp_path / "two", Sources()
    )


def test_an_archive_that_is_too_large_names_the_largest(tmp_path: Path) -> None:
    file = write(tmp_path, "ship_big.py", "def train(): pass")
    for index in range(25):
        write(tmp_path, f"ship_data/part{index}.bin", bytes(2**20 - index))
    write(tmp_path, "ship_data/__init__.py")
    message = r"25\.0 MiB in 27 files, 20 MiB is the most.* ship_data/part0\.bin \(1\.0 MiB\), .*: move data"
    with pytest.raises(FunctionError, match=message):
        pack(resolve(f"{file}:train"))


def test_an_archive_of_too_many_files(tmp_path: Path) -> None:
    for index in range(5):
        write(tmp_path, f"ship_many/{index}.txt")
    write(tmp_path, "ship_many/__init__.py")
    with pytest.raises(FunctionError, match=r"ship_many: more than 3 files.*move the data"):
        module_zip.archive_beside(tmp_path, Sources(), most_files=3)


def test_the_limit_of_function_and_archive_can_be_set(tmp_path: Path) -> None:
    target = resolve(f"{write(tmp_path, 'ship_both.py', 'def train(): pass')}:train")
    with pytest.raises(
        FunctionError, match=r"ship_both\.py:1\) has .* with all that it takes along.*raise code_limit \(to 120 MiB"
    ):
        pack(target, 10)
    assert pack(target, 2**20).archive


def test_a_limit_reached_while_pickling_can_be_raised() -> None:
    data = bytes(2**21)

    @of_a_script
    def train() -> int:
        return len(data)

    with pytest.raises(FunctionError, match=r"more than 1 MiB .* 1 MiB can be sent .*'data' .* has 2.0 MiB"):
        pack(train, 2**20)
    assert len(pack(train, 2**22).function) > 2**21


@pytest.mark.parametrize(("limit", "rule"), [(0, "at least 1"), (MOST_CODE_BYTES + 1, "at most"), ("60m", "number")])
def test_an_invalid_limit_is_refused(limit: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rf"^code_limit .*{rule}"):
        SweepOptions(code_limit=limit).most_code()


def test_captures_have_names() -> None:
    source = "def outer(n):\n def train(x, k=1, *, z=2): return A + [n, k, z] + B\n return train\ntrain = outer(3)"
    train = cell(source, A=[1], B=[2])
    train.note = 9  # type: ignore[attr-defined]
    assert [str(capture) for capture in captures_of(train)] == [
        "global 'A' (list) used by train at line 2",
        "global 'B' (list) used by train at line 2",
        "closure variable 'n' (int) of train",
        "default value of parameter 'k' (int) of train",
        "default value of parameter 'z' (int) of train",
        "attribute 'train.note' (int)",
    ]


def test_a_row_is_data_and_a_session_is_not() -> None:
    from pyspark.sql import Row, SparkSession

    assert not belongs_to_driver(Row(a=1))
    assert belongs_to_driver(object.__new__(SparkSession))
