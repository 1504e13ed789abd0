"""A process that ends while a library hangs in a call keeps its exit status."""

import signal
import socket
import subprocess
import sys

ENDING = """
import os, sys, time

import hdfs_native
from sparktrain.store.call_timeout import THREADS

class Lingering:
    def __del__(self, write=os.write, wait=time.sleep):
        write(1, b"ending\\n")
        wait(2.5)

sys.lingering = Lingering()  # freed when the interpreter ends
once = {"dfs.client.failover.max.attempts": "1"}
client = hdfs_native.Client("hdfs://127.0.0.1:%d", once)
THREADS.start(lambda: client.get_file_info("/x"))
sys.stdin.readline()
sys.exit(3)
"""


def test_a_call_that_returns_while_the_process_ends_does_not_change_its_exit_status() -> None:
    """A NameNode does not answer, and closes its connection while the interpreter ends."""
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
    stderr = process.communicate(timeout=30.0)[1]
    assert (process.returncode, stderr) == (3, b"")


RUNNING = """
import os, sys
from sparktrain.store import call_timeout

looks, rest = [], call_timeout._blocked_state

def look(thread):
    looks.append(rest(thread))
    return looks[-1]

def run():
    while len(looks) < 10:
        pass
    os.write(1, b"the call has come back\\n")

call_timeout._blocked_state = look
call_timeout.THREADS.start(run)
sys.exit(3)
"""


def test_a_running_thread_is_not_halted_because_it_may_hold_a_lock() -> None:
    ended = subprocess.run([sys.executable, "-c", RUNNING], capture_output=True, timeout=60.0, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"the call has come back\n", b"")


STUCK = """
import ctypes, signal, sys, threading
from sparktrain.store import call_timeout

call_timeout._END_S = 1
held = threading.Lock()
held.acquire()  # as a native lock that the process needs to end: only a signal ends the wait

class Lingering:
    def __del__(self, libc=ctypes.CDLL(None)):
        libc.pause()

sys.lingering = Lingering()
call_timeout.THREADS.start(held.acquire)
"""


def test_a_process_ends_although_a_halted_thread_holds_a_lock_it_needs() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=60.0, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGALRM, b"", b"")
