"""What every store must do. The test class of a store inherits `StoreContract` and implements how to open it."""

import hashlib
import multiprocessing
from collections.abc import Callable
from contextlib import closing
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import BugError
from sparktrain.store.base import PIECE_BYTES, FolderSurvey, Store, Usage
from sparktrain.store.url import open_store

CONTENDERS = 4
RACE_DEADLINE_S = 240.0
PUTS_BEFORE_DEATH = 5


class RaceContract:
    """Processes that create the same files at the same time. The fixture `store` gives each test an empty store.

    `reopen` must be a function that processes can be sent; it opens the store that `address` names.
    """

    rounds = 20
    """How many files the contenders of the race create."""
    reopen: Callable[[StoreAddress], Store] = staticmethod(open_store)
    contest: Any = multiprocessing.get_context("spawn")
    """What the contenders of a race are: processes; or `multiprocessing.dummy`, by which they are threads, for a store
    that no other process sees."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("a test class of a store must have a fixture `store`")

    @pytest.mark.timeout(RACE_DEADLINE_S + 60)
    def test_of_many_contenders_exactly_one_creates_a_file(self, store: Store) -> None:
        barrier = self.contest.Barrier(CONTENDERS)
        outcomes = self.contest.Queue()
        arguments = (self.reopen, store.address, self.rounds, barrier, outcomes)
        contenders = [self.contest.Process(target=_contend, args=(number, *arguments)) for number in range(CONTENDERS)]
        for contender in contenders:
            contender.daemon = True  # whatever hangs ends with the tests
            contender.start()
        for contender in contenders:
            contender.join(RACE_DEADLINE_S)
        assert [contender.exitcode for contender in contenders] == [0] * CONTENDERS
        won: dict[int, list[bool]] = dict(outcomes.get(timeout=RACE_DEADLINE_S) for _ in contenders)
        for turn in range(self.rounds):
            winners = [number for number in won if won[number][turn]]
            assert len(winners) == 1, f"round {turn} was won by {winners}"
            assert store.read(f"race/{turn}") == _entry(winners[0])
        assert store.list("race") == sorted(f"race/{turn}" for turn in range(self.rounds))


class StoreContract(RaceContract):
    """Tests of the contract in `sparktrain.store.base`.

    A class for a store of your own needs a fixture `store` and `reopen`, and nothing of this package's tests.
    """

    def test_probe_proves_a_store_that_works_and_leaves_nothing(self, store: Store) -> None:
        store.probe()
        assert store.list() == []

    def test_put_creates_once(self, store: Store) -> None:
        assert store.put_if_absent("run/journal/0001", b"first") is True
        assert store.put_if_absent("run/journal/0001", b"second") is False
        assert store.read("run/journal/0001") == b"first"

    @pytest.mark.parametrize("size", [0, 1, 3 * 1024 * 1024], ids=["empty", "byte", "3MiB"])
    def test_put_keeps_every_byte(self, store: Store, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        store.put_if_absent("data", data)
        assert store.read("data") == data

    @pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1], ids=["empty", "byte", "piece", "two pieces"])
    def test_pieces_make_the_whole(self, store: Store, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        store.put_if_absent("data", data)
        pieces = list(store.pieces("data"))
        assert b"".join(pieces) == data
        assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)

    def test_what_was_put_is_visible_to_every_client(self, store: Store) -> None:
        store.put_if_absent("run/results.json", b"{}")
        assert self.reopen(store.address).read("run/results.json") == b"{}"

    def test_a_missing_file(self, store: Store) -> None:
        with pytest.raises(FileNotFoundError):
            store.read("run/none")
        with pytest.raises(FileNotFoundError):
            next(store.pieces("run/none"))
        assert not store.exists("run/none")
        store.delete("run/none")

    def test_a_folder_is_no_file(self, store: Store) -> None:
        store.put_if_absent("run/trials/a", b"")
        with pytest.raises(FileNotFoundError):
            store.read("run/trials")
        with pytest.raises(FileNotFoundError):
            next(store.pieces("run/trials"))
        assert not store.exists("run/trials")
        store.delete("run/trials")
        assert store.exists("run/trials/a")

    def test_a_file_is_no_folder(self, store: Store) -> None:
        store.put_if_absent("run", b"")
        assert not store.exists("run/a")
        with pytest.raises(FileNotFoundError):
            store.read("run/a")
        assert store.list("run") == []

    def test_list_names_the_files_beneath_a_folder(self, store: Store) -> None:
        for path in ("a/b/2", "a/b/1", "a/bb/3", "a/4", "c"):
            store.put_if_absent(path, b"")
        assert store.list() == ["a/4", "a/b/1", "a/b/2", "a/bb/3", "c"]
        assert store.list("a") == ["a/4", "a/b/1", "a/b/2", "a/bb/3"]
        assert store.list("a/b") == ["a/b/1", "a/b/2"]
        assert store.list("none") == []

    def test_entries_are_what_is_directly_in_a_folder(self, store: Store) -> None:
        for path in ("a/b/2", "a/bb/3", "a/4", "c", "a/b.txt"):
            store.put_if_absent(path, b"")
        assert list(store.entries()) == ["a/", "c"]
        assert list(store.entries("a")) == ["4", "b.txt", "b/", "bb/"]
        assert list(store.entries("none")) == []

    def test_usage_counts_the_files_beneath_a_folder_and_their_bytes(self, store: Store) -> None:
        for path, size in (("a/b/1", 10), ("a/2", 5), ("ab/3", 100), ("c", 0)):
            store.put_if_absent(path, b"x" * size)
        assert store.usage("a") == Usage(2, 15)
        assert store.usage() == Usage(4, 115)
        assert store.usage("none") == Usage(0, 0)

    def test_a_folder_is_deleted_with_all_that_is_beneath_it(self, store: Store) -> None:
        for path in ("a/b/1", "a/2", "ab/3"):
            store.put_if_absent(path, b"x")
        new_file = store.create("a/b/lost")
        new_file.write(b"never published")
        for folder in ("a", "a", "none"):
            store.delete_folder(folder, lambda path: True)
        assert store.list() == ["ab/3"]
        assert list(store.entries()) == ["ab/"]
        assert list(store.unpublished("a", -60.0)) == []
        new_file.discard()

    def test_what_belongs_to_others_stays_and_is_named(self, store: Store) -> None:
        run = ("a/b/1", "a/b/c/2", "a/d/3", "a/e/f/4")
        alien = ("a/b/notes", "a/e/notes", "a/other/5", "a/other/g/6")
        for path in (*run, *alien):
            store.put_if_absent(path, b"xy")
        folders = {"a/", "a/b/", "a/b/c/", "a/d/", "a/e/", "a/e/f/"}

        def owns(path: str) -> bool:
            return path in folders or path in run

        leftovers = ("a/b/notes", "a/e/notes", "a/other/")
        assert store.survey("a", owns) == FolderSurvey(Usage(4, 8), leftovers)
        store.delete_folder("a", owns)
        assert store.list() == sorted(alien)
        assert list(store.entries("a")) == ["b/", "e/", "other/"]
        assert store.survey("a", owns) == FolderSurvey(Usage(0, 0), leftovers)
        assert store.survey("none", owns) == FolderSurvey(Usage(0, 0), ())
        assert store.way_out("a/b/notes", "a") is None

    def test_leftovers_in_folders_of_others_are_not_listed(self, store: Store) -> None:
        news = [store.create(f"run/{name}/new") for name in ("own", "other")]
        for new_file in news:
            new_file.write(b"lost")
        everything = store.unpublished("run", -60.0)  # where a store leaves nothing, there is nothing to find
        own_files = store.unpublished("run", -60.0, lambda path: path in ("run/", "run/own/"))
        assert [file for file in everything if "/own/" in file.name] == list(own_files)
        for new_file in news:
            new_file.discard()

    def test_what_a_dead_writer_leaves_is_found_and_deleted_and_nothing_else_is(self, store: Store) -> None:
        store.put_if_absent("run/a", b"published")
        new_file = store.create("run/trials/b")
        new_file.write(b"lost")
        for leftover in store.unpublished("run", -60.0):  # where a store leaves nothing, there is nothing to find
            store.discard_unpublished(leftover)
        assert list(store.unpublished("run", -60.0)) == []
        assert list(store.unpublished("none", -60.0)) == []
        assert store.list() == ["run/a"]
        new_file.discard()

    def test_delete_makes_room(self, store: Store) -> None:
        store.put_if_absent("run/a", b"1")
        store.delete("run/a")
        assert not store.exists("run/a")
        assert store.put_if_absent("run/a", b"2") is True
        assert store.read("run/a") == b"2"

    def test_many_files_are_deleted_and_no_others(self, store: Store) -> None:
        paths = [f"run/batch-{number:04d}" for number in range(70)]
        for path in [*paths[:40], "run/batch-0001-more"]:
            store.put_if_absent(path, b"1")
        store.delete_all(paths)
        store.delete_all([])
        assert store.list() == ["run/batch-0001-more"]

    def test_a_stream_is_a_prefix_while_it_grows_and_whole_when_closed(self, store: Store) -> None:
        stream = store.open_stream("run/log.txt")
        stream.write(b"one\n")
        if store.exists("run/log.txt"):
            assert b"one\ntwo\n".startswith(store.read("run/log.txt"))
        stream.write(b"two\n")
        stream.close()
        assert store.read("run/log.txt") == b"one\ntwo\n"
        assert store.list() == ["run/log.txt"]

    def test_an_empty_stream_is_an_empty_file(self, store: Store) -> None:
        store.open_stream("log").close()
        assert store.read("log") == b""

    def test_a_stream_never_overwrites(self, store: Store) -> None:
        store.put_if_absent("log", b"kept")
        with pytest.raises(FileExistsError), closing(store.open_stream("log")):
            pass
        assert store.read("log") == b"kept"

    def test_a_stream_that_is_closed_takes_nothing(self, store: Store) -> None:
        stream = store.open_stream("log")
        stream.close()
        stream.close()
        with pytest.raises(ValueError, match="closed"):
            stream.write(b"late")
        assert store.put_if_absent("log", b"late") is False

    def test_a_range_of_a_file(self, store: Store) -> None:
        store.put_if_absent("run/a", bytes(range(100)))
        assert store.read_range("run/a", 10, 5) == bytes(range(10, 15))
        assert store.read_range("run/a", 98, 5) == bytes([98, 99])
        assert store.read_range("run/a", 100, 5) == b""
        assert store.read_range("run/a", 0, 0) == b""
        with pytest.raises(FileNotFoundError):
            store.read_range("run/none", 0, 1)

    def test_stat_reports_the_size_and_the_time_of_the_clock_that_now_reads(self, store: Store) -> None:
        before = store.now("run")
        store.put_if_absent("run/a", b"12345")
        assert store.stat("run/a").size == 5
        assert before <= store.stat("run/a").modified <= store.now("run")
        assert store.list() == ["run/a"]
        for missing in ("run/none", "run"):
            with pytest.raises(FileNotFoundError):
                store.stat(missing)

    @pytest.mark.parametrize("size", [0, 1, PIECE_BYTES + 1], ids=["empty", "byte", "two pieces"])
    def test_a_new_file_is_published_whole(self, store: Store, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        new_file = store.create("run/model")
        for start in range(0, size, PIECE_BYTES):
            new_file.write(data[start : start + PIECE_BYTES])
            assert not store.exists("run/model")
            assert store.list() == []
        written = new_file.publish()
        new_file.discard()
        assert (written.size, written.sha256) == (size, hashlib.sha256(data).hexdigest())
        assert b"".join(store.pieces("run/model")) == data
        assert store.list() == ["run/model"]

    def test_a_new_file_takes_views_of_memory(self, store: Store) -> None:
        data = bytes(range(256)) * (PIECE_BYTES // 256) + b"end"
        new_file = store.create("run/model")
        new_file.write(memoryview(data))
        new_file.write(memoryview(bytearray(data)).cast("b"))
        assert new_file.publish().sha256 == hashlib.sha256(2 * data).hexdigest()
        assert b"".join(store.pieces("run/model")) == 2 * data

    def test_a_discarded_file_was_never_there(self, store: Store) -> None:
        new_file = store.create("run/model")
        new_file.write(b"half")
        new_file.discard()
        new_file.discard()
        assert store.list() == []
        assert store.put_if_absent("run/model", b"other")

    def test_a_new_file_never_overwrites(self, store: Store) -> None:
        late = store.create("run/model")
        late.write(b"late")
        store.put_if_absent("run/model", b"kept")
        with pytest.raises(FileExistsError):
            late.publish()
        with pytest.raises(FileExistsError):
            store.create("run/model")
        assert store.read("run/model") == b"kept"
        assert store.list() == ["run/model"]

    def test_the_address_opens_the_same_store(self, store: Store) -> None:
        store.put_if_absent("run/a", b"1")
        assert self.reopen(store.address).read("run/a") == b"1"

    @pytest.mark.parametrize(
        "path", ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\0b", "a\nb", "a\\b", ".tmp-a"]
    )
    def test_paths_that_are_refused(self, store: Store, path: str) -> None:
        for call in (store.read, store.exists, store.delete, store.open_stream, store.create, store.stat):
            with pytest.raises(BugError):
                call(path)
        with pytest.raises(BugError):
            store.put_if_absent(path, b"")
        with pytest.raises(BugError):
            next(store.pieces(path))


class SharedStoreContract(StoreContract):
    """The contract of a store that other processes see too: of every one that a run can live in."""

    def test_a_writer_that_is_killed_leaves_nothing_half_written(self, store: Store) -> None:
        processes = multiprocessing.get_context("spawn")
        receiver, sender = processes.Pipe(duplex=False)
        writer = processes.Process(target=_write_for_ever, args=(self.reopen, store.address, sender))
        writer.start()
        try:
            for _ in range(PUTS_BEFORE_DEATH):
                assert receiver.poll(RACE_DEADLINE_S)
                receiver.recv()
        finally:
            writer.kill()
            writer.join()
        put = store.list("killed/put")
        assert len(put) >= PUTS_BEFORE_DEATH
        assert all(store.read(path) == _entry(0) for path in put)
        assert set(store.list()) - set(put) <= {"killed/log"}
        if store.exists("killed/log"):
            log = store.read("killed/log")
            assert log == b"0123456789" * (len(log) // 10) + b"0123456789"[: len(log) % 10]
        for path in ("killed/model", f"killed/put/{len(put)}"):
            assert store.put_if_absent(path, b"next")


def _entry(number: int) -> bytes:
    return bytes([number]) * 200_000


def _contend(
    number: int,
    reopen: Callable[[StoreAddress], Store],
    address: StoreAddress,
    rounds: int,
    barrier: Barrier,
    outcomes: "Queue[tuple[int, list[bool]]]",
) -> None:
    store = reopen(address)
    won = []
    try:
        for turn in range(rounds):
            barrier.wait(RACE_DEADLINE_S)
            won.append(store.put_if_absent(f"race/{turn}", _entry(number)))
            content = store.read(f"race/{turn}")
            if content not in map(_entry, range(CONTENDERS)):
                raise AssertionError(f"process {number} read {len(content)} bytes that no process put, in round {turn}")
    except BaseException:
        barrier.abort()  # the others do not wait for one that has failed
        raise
    outcomes.put((number, won))


def _write_for_ever(reopen: Callable[[StoreAddress], Store], address: StoreAddress, report: Connection) -> None:
    """Write a file and a log, so that a kill hits the middle of one or, mostly, of a put."""
    store = reopen(address)
    model = store.create("killed/model")
    log = store.open_stream("killed/log")
    for _ in range(3):
        model.write(bytes(PIECE_BYTES))
    for turn in count():
        log.write(b"0123456789" * 30_000)
        store.put_if_absent(f"killed/put/{turn}", _entry(0))
        report.send(turn)
