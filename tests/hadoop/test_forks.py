"""Processes that have used HDFS and fork: neither they nor their children hang, or get what another has asked for."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.hadoop import Hdfs

DEADLINE_S = 60.0
PREPARE = """
import os, sys, threading
from sparktrain.errors import StoreRefusedError
from sparktrain.config.store_address import StoreAddress
from sparktrain.store.url import open_store

def fork(work):
    child = os.fork()
    if child == 0:
        work()
        sys.exit(0)  # as a program ends: what is left over is freed
    assert os.waitpid(child, 0) == (child, 0)

store = open_store(StoreAddress(sys.argv[1], timeout_s=20.0))
CONTENT = {name: name.encode() * 100_000 for name in "abcd"}
for name in CONTENT: store.put_if_absent(name, CONTENT[name])
log, new, pieces = store.open_stream("log"), store.create("new"), store.pieces("a")
log.write(b"x" * 2**20)
new.write(b"y")
next(pieces)
"""
USE = """
def use():
    if sys.argv[1].startswith("hdfs:"):
        try:
            store.read("a")
        except StoreRefusedError as error:
            assert "was forked from one that had used HDFS" in str(error)
        else:
            raise AssertionError("it was not refused")
    else:
        assert store.read("a") == CONTENT["a"] and store.put_if_absent(f"by {os.getpid()}", b"2")
"""
PROGRAMS = {
    "a child that ends": "fork(lambda: None)",
    "a child that uses the store": "fork(use)",
    "a child of a child": "fork(lambda: fork(use))",
    "forks in the middle of calls": """
        ended, wrong = threading.Event(), []
        def read(name):
            while not ended.is_set():
                if store.read(name) != CONTENT[name]:
                    wrong.append(name)
        readers = [threading.Thread(target=read, args=name) for name in CONTENT]
        for reader in readers: reader.start()
        for _ in range(5): fork(use)
        ended.set()
        for reader in readers: reader.join()
        assert not wrong
    """,
}
RESUME = """
assert all(store.read(name) == CONTENT[name] for name in CONTENT)
log.close()
assert new.publish().size == 1
assert store.stat("log").size == 2**20
print("resumed")
"""


@pytest.mark.parametrize("protocol", ["hdfs", "webhdfs"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_fork_after_the_store_was_used(protocol: str, program: str, hdfs_cluster: Hdfs, tmp_path: Path) -> None:
    url = hdfs_cluster.url if protocol == "hdfs" else hdfs_cluster.webhdfs_url.replace("http:", "webhdfs:")
    text = PREPARE + USE + textwrap.dedent(PROGRAMS[program]) + RESUME
    process = subprocess.Popen(
        [sys.executable, "-c", text, f"{url}{tmp_path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, output
    assert output.endswith("resumed\n")
