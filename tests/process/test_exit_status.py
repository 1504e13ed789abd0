"""A process that ends while a library is in a call that hangs: its exit status is the one that it meant."""

import socket
import subprocess
import sys

ENDING = """
import os, sys, time

import hdfs_native
from sparktrain.store.deadlines import THREADS

class Lingering:
    def __del__(self, tell=os.write, wait=time.sleep):
        tell(1, b"ending\\n")
        wait(2.5)

sys.lingering = Lingering()  # freed when the interpreter ends
once = {"dfs.client.failover.max.attempts": "1"}
client = hdfs_native.Client("hdfs://127.0.0.1:%d", once)
THREADS.start(lambda: client.get_file_info("/x"))
sys.stdin.readline()
sys.exit(3)
"""


def test_a_call_that_comes_back_while_the_process_ends_leaves_its_exit_status_alone() -> None:
    """A NameNode that is silent, and gone while the interpreter is being ended."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen(
            [sys.executable, "-c", ENDING % silent.getsockname()[1]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        silent.settimeout(30.0)
        with silent.accept()[0]:
            process.stdin.write(b"the call is under way\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ending\n"
    told = process.communicate(timeout=30.0)[1]
    assert (process.returncode, told) == (3, b"")
