"""The user's code in local files."""

import hashlib
import os
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from sparktrain.errors import ProtocolError
from sparktrain.executor.code import MOST_CODES, keep
from sparktrain.protocol.messages import Code
from sparktrain.protocol.pipe_messages import LocalCode


def code(function: bytes = b"function", modules: int = 2) -> Code:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(modules):
            archive.writestr(f"module_{number}.py", f"x = {number}")
    return Code(hashlib.sha256(function + buffer.getvalue()).hexdigest(), function, archive=buffer.getvalue())


def content(local: LocalCode) -> dict[str, bytes]:
    [modules] = local.sys_path
    found = {path.name: path.read_bytes() for path in Path(modules).iterdir()}
    return found | {"function": Path(local.path).read_bytes()}


WHOLE = {"function": b"function", "module_0.py": b"x = 0", "module_1.py": b"x = 1"}


def test_code_is_there_whole(tmp_path: Path) -> None:
    assert content(keep(code(), tmp_path / "code")) == WHOLE


def test_its_folder_is_not_there_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, rename, seen = code(), Path.rename, []

    def watched(self: Path, target: Path) -> Path:
        seen.append(((tmp_path / whole.digest).exists(), {path.name for path in self.rglob("*.py")}))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)
    assert content(keep(whole, tmp_path)) == WHOLE
    assert seen == [(False, {"module_0.py", "module_1.py"})]


def test_many_at_once_get_it_whole(tmp_path: Path) -> None:
    many = code(modules=50)
    together = threading.Barrier(8)

    def found() -> dict[str, bytes]:
        together.wait(10.0)
        return content(keep(many, tmp_path))

    with ThreadPoolExecutor(8) as pool:
        results = [each.result() for each in [pool.submit(found) for _ in range(8)]]
    assert [len(each) for each in results] == [51] * 8


def test_an_interrupted_write_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", lambda self, data: (_ for _ in ()).throw(OSError(28, "disk full")))
        with pytest.raises(OSError, match="disk full"):
            keep(code(), tmp_path)
    assert os.listdir(tmp_path) == []
    assert content(keep(code(), tmp_path)) == WHOLE


def test_only_the_most_recently_used_code_stays(tmp_path: Path) -> None:
    wanted = code(b"often")
    often = keep(wanted, tmp_path)
    for number in range(2 * MOST_CODES):
        newest = keep(code(f"{number}".encode()), tmp_path)
        assert keep(wanted, tmp_path) == often
    assert len(os.listdir(tmp_path)) == MOST_CODES
    assert content(newest)["function"] == str(2 * MOST_CODES - 1).encode()
    assert content(often)["function"] == b"often"


def test_corrupt_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="corrupted"):
        keep(Code("0" * 64, b"function"), tmp_path)
    assert os.listdir(tmp_path) == []
