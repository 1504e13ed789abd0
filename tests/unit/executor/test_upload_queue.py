"""What travels of a member's files, and in how many uploads."""

from pathlib import Path

import pytest

from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.executor.upload_queue import SMALL_BYTES, Chunks, Storing, Uploader
from sparktrain.protocol import messages as m

MEMBER = Member(RunId("run"), TrialId(0), Generation(1))


class Uploaded(Uploader):
    """In place of a workbench: the names of the files of each upload."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []

    async def upload(self, header: m.UploadHeader, chunks: Chunks) -> m.UploadDone:
        size = sum([len(chunk) async for chunk in chunks()])
        self.names.append([part.name for part in header.parts] or [header.name])
        return m.UploadDone(size)


def _home(tmp_path: Path, log: bytes, **files: bytes) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "log.txt").write_bytes(log)
    for name, content in files.items():
        (tmp_path / "files" / name).write_bytes(content)
    return tmp_path


async def _bring_all(home: Path) -> list[list[str]]:
    uploaded = Uploaded()
    storing = Storing(AgentId("agent"), MEMBER, home, uploaded)
    await storing.bring_all("log.txt")
    assert storing.problem == ""
    return uploaded.names


async def test_a_member_that_left_nothing_costs_no_upload(tmp_path: Path) -> None:
    assert await _bring_all(_home(tmp_path, b"")) == []


async def test_a_log_is_sent_with_small_files(tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"{}")
    assert await _bring_all(_home(tmp_path, b"line\n", one=b"1")) == [["log.txt", "model.keras", "files/one"]]


async def test_an_empty_file_of_the_function_is_uploaded(tmp_path: Path) -> None:
    assert await _bring_all(_home(tmp_path, b"", marker=b"")) == [["files/marker"]]


@pytest.mark.parametrize(
    ("size", "limit", "short"), [(10, 20, True), (30, 20, False), (SMALL_BYTES + 1, 2**30, False), (None, 20, False)]
)
def test_a_long_or_capped_or_missing_log_is_not_sent_with_others(
    tmp_path: Path, size: int | None, limit: int, short: bool
) -> None:
    if size is not None:
        (tmp_path / "log.txt").write_bytes(bytes(size))
    storing = Storing(AgentId("agent"), MEMBER, tmp_path, Uploaded())
    assert storing.is_short("log.txt", limit) is short
