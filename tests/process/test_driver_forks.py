"""A process that uses gRPC can start others in every way that Python has."""

import subprocess
import sys

PROGRAM = """\
import os, subprocess
from concurrent.futures import ThreadPoolExecutor
from sparktrain.protocol.grpc_without_fork_handlers import grpc

server = grpc.server(ThreadPoolExecutor(2))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
grpc.channel_ready_future(channel).result(30)
children = [
    subprocess.run(["/bin/true"], preexec_fn=lambda: None, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(100)
]
print({(child.returncode, child.stderr) for child in children}, os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
"""


def test_children_with_a_function_before_exec_all_start() -> None:
    """PySpark starts Java so: 3 of 100 ended by SIGABRT, and gRPC printed a line for each of the others."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], timeout=120, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("{(0, b'')} None\n", "")


CHOICE = """\
import os
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "1"
import sparktrain.protocol.grpc
print(os.environ["GRPC_ENABLE_FORK_SUPPORT"])
"""


def test_a_program_that_has_chosen_fork_support_keeps_its_choice() -> None:
    ended = subprocess.run([sys.executable, "-c", CHOICE], timeout=60, capture_output=True, text=True)
    assert ended.stdout == "1\n", ended.stderr
