"""A store over HDFS, with requests that fail before or after they take effect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.errors import StoreError
from sparktrain.store.base import UNPUBLISHED
from sparktrain.store.hadoop.transfers import RESENT_BYTES
from tests.unit.store.hadoop.memory import Faults, Hdfs, MemoryStore, failing

PATH = "/exp/a"
LARGE = bytes(RESENT_BYTES + 1)
"""A file that is not sent again."""

faults = st.dictionaries(
    st.tuples(st.sampled_from(["create", "write", "close", "rename", "delete", "status"]), st.integers(0, 4)),
    st.booleans(),
    max_size=8,
)


def visible(hdfs: Hdfs) -> set[str]:
    return {path for path in hdfs.files if UNPUBLISHED not in path}


@given(faults)
def test_a_put_is_complete_and_reports_its_own_success(faults: Faults) -> None:
    hdfs = Hdfs(failing(faults))
    assert MemoryStore(hdfs).put_if_absent("a", b"ours") is True
    assert hdfs.content(PATH) == b"ours"
    assert visible(hdfs) == {PATH}


@given(faults, st.integers(0, 3), st.sampled_from(["create", "close", "rename"]), st.booleans())
def test_of_two_concurrent_puts_the_first_one_wins(faults: Faults, when: int, request: str, after: bool) -> None:
    """Both put the same bytes, so that the content does not show which put won."""
    theirs = False

    def other(now: str, number: int, done: bool) -> None:
        nonlocal theirs
        if (now, number, done) == (request, when, after) and PATH not in hdfs.files:
            theirs = True
            hdfs.put(PATH, b"same")

    hdfs = Hdfs(failing(faults, other))
    assert MemoryStore(hdfs).put_if_absent("a", b"same") is not theirs
    assert visible(hdfs) == {PATH}


@given(faults)
def test_a_new_file_whose_start_can_be_sent_again_is_published(faults: Faults) -> None:
    hdfs = Hdfs(failing(faults))
    new = MemoryStore(hdfs).create("a")
    for piece in (b"one", b"two"):
        assert visible(hdfs) == set()
        new.write(piece)
    assert new.publish().size == 6
    assert (hdfs.content(PATH), visible(hdfs)) == (b"onetwo", {PATH})


@given(faults)
def test_a_large_file_is_published_completely_or_not_at_all(faults: Faults) -> None:
    hdfs = Hdfs(failing(faults))
    try:
        new = MemoryStore(hdfs).create("a")
        for piece in (LARGE, b"two"):
            assert visible(hdfs) == set()
            new.write(piece)
        written = new.publish()
    except StoreError:
        assert visible(hdfs) == set()
    else:
        assert (written.size, hdfs.content(PATH)) == (len(LARGE) + 3, LARGE + b"two")


@given(faults, st.lists(st.binary(max_size=20), max_size=5))
def test_a_log_has_every_byte_once(faults: Faults, pieces: list[bytes]) -> None:
    hdfs = Hdfs(failing(faults | {("append", number): done for (_, number), done in faults.items()}))
    stream = MemoryStore(hdfs).open_stream("a")
    for piece in pieces:
        stream.write(piece)
        assert b"".join(pieces).startswith(hdfs.content(PATH) or b"")
    stream.close()
    assert hdfs.content(PATH) == b"".join(pieces)


@given(st.sets(st.tuples(st.sampled_from(["status", "open", "read"]), st.integers(0, 4))))
def test_reads_are_correct_despite_faults(failed: set[tuple[str, int]]) -> None:
    hdfs = Hdfs(failing(dict.fromkeys(failed, False)))
    hdfs.put(PATH, b"content")
    store = MemoryStore(hdfs)
    assert store.read("a") == b"content"
    assert store.read_range("a", 3, 2) == b"te"
    assert store.stat("a").size == 7


@pytest.mark.parametrize("data", [b"whole", LARGE], ids=["small", "large"])
def test_a_short_file_is_never_published(data: bytes) -> None:
    """As a gateway leaves it when its connection breaks: closed, as if complete."""

    def cut(request: str, done: bool) -> None:
        if request == "close" and done and len(cuts) < 2:
            path = next(path for path in hdfs.files if UNPUBLISHED in path and path not in cuts)
            cuts.append(path)
            del hdfs.files[path].data[3:]

    cuts: list[str] = []
    hdfs = Hdfs(cut)
    new = MemoryStore(hdfs).create("a")
    new.write(data)
    if data is LARGE:
        with pytest.raises(StoreError, match=f"3 of {len(LARGE)} bytes have arrived"):
            new.publish()
        assert MemoryStore(hdfs).put_if_absent("a", data) is True
    else:
        assert new.publish().size == len(data)
    assert hdfs.content(PATH) == data
    assert len(cuts) == 2


def test_a_file_that_another_process_deletes_is_not_claimed() -> None:
    def delete_all(request: str, done: bool) -> None:
        if request == "rename" and not done:
            hdfs.files.clear()
            hdfs.put(PATH, b"theirs")

    hdfs = Hdfs(delete_all)
    with pytest.raises(StoreError, match="another process has deleted"):
        MemoryStore(hdfs).put_if_absent("a", b"ours")


def test_a_log_that_grows_while_it_is_read_is_read_to_its_size_at_open() -> None:
    def fail(request: str, done: bool) -> None:
        if request == "read" and not done and not grown:
            grown.append(request)
            hdfs.files[PATH].data += b" and more"
            raise RuntimeError("DataTransferError")

    grown: list[str] = []
    hdfs = Hdfs(fail)
    hdfs.put(PATH, b"content")
    assert MemoryStore(hdfs).read("a") == b"content"


def test_a_file_that_shrinks_while_it_is_read_is_an_error() -> None:
    def fail(request: str, done: bool) -> None:
        if request == "read" and not done and len(hdfs.files[PATH].data) > 5:
            hdfs.put(PATH, b"other")
            raise RuntimeError("DataTransferError")

    hdfs = Hdfs(fail)
    hdfs.put(PATH, b"content")
    with pytest.raises(StoreError, match="had 7 bytes, and has 5 now: read it again"):
        MemoryStore(hdfs).read("a")
