"""Processes that share the cache of a host: one fetches a group, whatever becomes of it and of the disk."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.datasets.host_cache import HostCache
from sparktrain.errors import StoreTimeoutError
from tests.unit.datasets.test_host_cache import Once, batch_of, number_in

FETCHER = """
import os, sys, pathlib
from sparktrain.datasets.host_cache import HostCache
from tests.unit.datasets.test_host_cache import batch_of
root, number, hold = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
cache = HostCache(root, "digest")
def fetch():
    (root / f"fetch-{os.getpid()}").touch()
    print("fetching", flush=True)
    if hold:
        sys.stdin.read()
    return batch_of(number)
print(cache.get(0, fetch).column("x")[0], flush=True)
"""


def process(root: Path, number: int, *hold: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", FETCHER, str(root), str(number), *hold]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(each: "subprocess.Popen[str]") -> str:
    assert each.stdout is not None
    return each.stdout.readline().strip()


def test_a_process_that_dies_while_it_fetches_leaves_the_group_to_others(tmp_path: Path) -> None:
    with process(tmp_path, 1, "hold") as first:
        assert line_of(first) == "fetching"
        cache, fetch = HostCache(tmp_path, "digest", wait_s=0.05), Once(batch_of(2))
        with pytest.raises(
            StoreTimeoutError, match=r"reads group 0 of a dataset for more than 0.05 s \(its lock is in"
        ):
            cache.get(0, fetch)
        assert fetch.calls == 0
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        assert number_in(HostCache(tmp_path, "digest", wait_s=10).get(0, fetch)) == 2
    assert fetch.calls == 1


def test_processes_wait_for_the_one_that_fetches(tmp_path: Path) -> None:
    with process(tmp_path, 1, "hold") as first:
        assert line_of(first) == "fetching"
        with process(tmp_path, 2) as second:
            first.communicate("", timeout=20)
            assert line_of(second) == "1"
    assert len(list(tmp_path.glob("fetch-*"))) == 1


FULL = """
import pathlib, subprocess, sys
from sparktrain.datasets.host_cache import HostCache
from sparktrain.errors import DataError
from tests.unit.datasets.test_host_cache import batch_of, never, number_in, KIB
disk = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
cache = HostCache(disk, "digest", limit_bytes=10**9)
for group in range(12):
    assert number_in(cache.get(group, lambda: batch_of(group))) == group
cache.get(11, never)
try:
    cache.get(99, lambda: batch_of(1, 256 * KIB))
except DataError as error:
    print(error)
print(sorted(each.name for each in disk.rglob("*.new")), number_in(cache.get(5, lambda: batch_of(5))))
"""


def test_a_full_disk_evicts_all_else_and_then_says_what_to_do(tmp_path: Path) -> None:
    own = ["--mount"] if os.getuid() == 0 else ["--mount", "--map-root-user"]
    command = ["unshare", *own, sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    error, rest = done.stdout.splitlines()
    assert "do not fit into the cache in" in error
    assert "free (" in error
    assert "No space left on device" in error
    assert error.endswith("free space there, or set data_cache to a directory with more")
    assert rest == "[] 5"


SHARED = """
import pathlib, random, shutil, sys
from sparktrain.datasets.host_cache import HostCache
from tests.unit.datasets.test_host_cache import batch_of, number_in
root, role, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
draws = random.Random(role)
print("ready", flush=True)
sys.stdin.readline()
for number in range(rounds):
    if role == "cleans":
        for home in pathlib.Path(root).glob("sparktrain-data-*"):
            shutil.rmtree(home, ignore_errors=True)
    cache = HostCache(root, "digest", 0 if role == "evicts" else None)
    for group in (draws.randrange(6) for _ in range(5)):
        assert number_in(cache.get(group, lambda: batch_of(group))) == group
    assert cache.content(lambda: b"manifest", b"manifest".__eq__) == b"manifest"
"""


def test_runs_that_share_a_cache_survive_that_one_of_them_deletes(tmp_path: Path) -> None:
    roles = ("reads", "evicts", "cleans")
    commands = [[sys.executable, "-c", SHARED, str(tmp_path), role, "30"] for role in roles]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **options) for command in commands]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = {role: process.communicate(timeout=60)[1] for role, process in zip(roles, processes, strict=True)}
    assert ended == dict.fromkeys(roles, "")
