"""A process that uses gRPC can start others in every way that Python has."""

import subprocess
import sys

import pytest

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


SERVER = """\
import grpc
from concurrent.futures import ThreadPoolExecutor

server = grpc.server(ThreadPoolExecutor(2))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination(120)
"""
CHANNELS = """\
import os, signal, subprocess, sys
FIRST
import sparktrain.protocol.grpc
import grpc

server = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
target = f"127.0.0.1:{int(server.stdout.readline())}"
grpc.channel_ready_future(grpc.insecure_channel(target)).result(60)
if (child := os.fork()) == 0:
    signal.alarm(60)
    grpc.channel_ready_future(grpc.insecure_channel(target)).result(50)
    os._exit(0)
print(os.waitpid(child, 0)[1], os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
server.kill()
server.wait()
"""


@pytest.mark.parametrize("first", ["import grpc", "os.environ['GRPC_ENABLE_FORK_SUPPORT'] = '1'"])
def test_a_fork_of_a_program_that_has_chosen_gets_the_support_of_grpc(first: str) -> None:
    command = [sys.executable, "-c", CHANNELS.replace("FIRST", first), SERVER]
    ended = subprocess.run(command, timeout=180, capture_output=True, text=True)
    assert ended.stdout == f"0 {'1' if 'environ' in first else None}\n"
