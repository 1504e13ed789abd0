"""Framing of TFRecord files: any records in any pieces come back, and no wrong byte does."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain import data
from sparktrain.datasets.file_formats import CorruptFileError
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.group_file import MOST_BYTES, MOST_ROWS
from sparktrain.datasets.tfrecord import TfRecordRows, TfRecordWriter, compression_of, framed
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from tests.support.examples import examples
from tests.unit.datasets.data_files import fetched, put

RECORDS = st.lists(
    st.one_of(st.binary(max_size=40), st.sampled_from([b"same length 1", b"same length 2"])), max_size=200
)


class Pieces:
    """A store with one file, which it hands out in pieces of a given size."""

    def __init__(self, content: bytes, size: int) -> None:
        self.content, self.size = content, size

    def pieces(self, path: str) -> list[bytes]:
        return [self.content[at : at + self.size] for at in range(0, len(self.content), self.size)]

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.content[start : start + length]

    def where(self, path: str = "") -> str:
        return path


def rows(content: bytes, size: int = 2**22, compression: str = "") -> TfRecordRows:
    return TfRecordRows(Pieces(content, size), "x", len(content), compression, {})  # type: ignore[arg-type]


def read(file: TfRecordRows) -> list[bytes]:
    groups, lengths = file.groups(["record"])
    found = [file.read(each, ["record"])["record"].to_pylist() for each in groups]
    assert [len(each) for each in found] == [each.rows for each in groups]
    whole = [record for group in found for record in group]
    if whole:
        assert lengths == {"record": ((min(map(len, whole)), max(map(len, whole))),)}
    return whole


@examples(40)
@given(records=RECORDS, size=st.integers(1, 500))
def test_records_come_back_from_any_pieces(records: list[bytes], size: int) -> None:
    assert read(rows(b"".join(map(framed, records)), size)) == records


@examples(40)
@given(records=RECORDS.filter(bool), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_wrong_bit_is_found(records: list[bytes], place: float, bit: int) -> None:
    content = bytearray(b"".join(map(framed, records)))
    content[int(place * len(content))] ^= 1 << bit
    with pytest.raises(CorruptFileError, match=r"at byte \d"):
        read(rows(bytes(content)))


@examples(40)
@given(records=RECORDS.filter(bool), lost=st.integers(1, 15))
def test_a_cut_file_is_found_with_the_groups_before(records: list[bytes], lost: int) -> None:
    content = b"".join(map(framed, records))
    with pytest.raises(CorruptFileError, match="is cut") as raised:
        rows(content[:-lost]).groups(["record"])
    assert sum(each.rows for each in raised.value.good) == len(records) - 1


@examples(40)
@given(records=RECORDS.filter(bool), compression=st.sampled_from(["gzip", "zlib"]), lost=st.integers(1, 5))
def test_compressed_records_come_back_unless_cut(records: list[bytes], compression: str, lost: int) -> None:
    plain = b"".join(map(framed, records))
    content = gzip.compress(plain) if compression == "gzip" else zlib.compress(plain)
    assert compression_of(content[:12]) == compression
    assert read(rows(content, 7, compression)) == records
    with pytest.raises(CorruptFileError, match="is cut"):
        read(rows(content[:-lost], 7, compression))


def test_plain_records_look_like_no_compressed_ones() -> None:
    length = int.from_bytes(b"\x1f\x8b", "little")
    assert compression_of(framed(bytes(length))[:12]) == ""
    assert compression_of(b"") == ""


def test_groups_are_bounded_by_rows_and_bytes() -> None:
    small, large = b"x" * 10, b"y" * (MOST_BYTES // 3)
    records = [small] * (MOST_ROWS + 5) + [large] * 4 + [b"z" * (MOST_BYTES + 1)] + [small]
    file = rows(b"".join(map(framed, records)))
    groups, _ = file.groups(["record"])
    assert [each.rows for each in groups] == [MOST_ROWS, 5 + 2, 2, 1, 1]
    assert [each.offset for each in groups[1:]] == [each.offset + each.size for each in groups[:-1]]
    assert all(each.size <= MOST_BYTES or each.rows == 1 for each in groups)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path)


@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
def test_the_writer_writes_what_the_reader_reads(compression: str, store: Store) -> None:
    records = [bytes([each]) * each for each in range(100)]
    file = store.create("in/a")
    writer = TfRecordWriter(file, compression)
    writer.write(records[:60])
    writer.write(records[60:])
    writer.finish()
    file.publish()
    manifest = plan_files(data.tfrecord(store.where("in")), "train")
    assert manifest.compression == compression
    assert fetched(manifest)["record"].to_pylist() == records
    if compression:
        assert len(manifest.files[0].groups) == 1


def test_a_file_that_is_not_compressed_as_asked_is_refused(store: Store) -> None:
    put(store, "in/a", framed(b"record"))
    with pytest.raises(DataError, match="in/a is corrupt: it cannot be decompressed by gzip"):
        plan_files(data.tfrecord(store.where("in"), compression="gzip"), "train")


def test_a_compressed_file_that_is_too_large_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktrain.datasets.tfrecord.MOST_DECOMPRESSED", 1000)
    put(store, "in/a", gzip.compress(framed(bytes(2000))))
    with pytest.raises(DataError, match=r"in/a has more than 1,000 bytes decompressed.*split it"):
        plan_files(data.tfrecord(store.where("in")), "train")


def test_joined_gzip_files_are_one(store: Store) -> None:
    put(store, "in/a.gz", gzip.compress(framed(b"one")) + gzip.compress(framed(b"two")))
    assert fetched(plan_files(data.tfrecord(store.where("in")), "train"))["record"].to_pylist() == [b"one", b"two"]


@pytest.mark.long
def test_groups_of_a_file_are_read_by_their_ranges(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(framed(np.int64(each).tobytes() * 40_000) for each in range(120))
    put(store, "in/a", content)
    manifest = plan_files(data.tfrecord(store.where("in")), "train")
    read: list[int] = []
    real = LocalStore.read_range

    def read_range(store: LocalStore, path: str, start: int, length: int) -> bytes:
        read.append(length)
        return real(store, path, start, length)

    monkeypatch.setattr(LocalStore, "read_range", read_range)
    assert len(fetched(manifest)) == 120
    assert read == [each.size for each in manifest.files[0].groups]
    assert sum(read) == len(content)
    assert len(read) == 3
