"""Forks beside operations of Gloo, in real processes of PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python forks beside threads of Gloo from 3.12 on"),
]

PROGRAM = """
import os
import sys
import time

import torch
import torch.distributed as dist

from sparktrain.training.frameworks.torch import gloo_threads

rank, folder, timeout_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
if rank:
    sys.stdin.readline()
    dist.all_reduce(torch.ones(4))
else:
    gloo_threads.FORK_TIMEOUT_S = timeout_s
    work = dist.all_reduce(torch.ones(4), async_op=True)
    deadline = time.monotonic() + 30
    while not list(gloo_threads.busy_threads()):  # its thread may start later
        assert time.monotonic() < deadline, "it waits for the other process"
    # The newest one is called first.
    os.register_at_fork(before=lambda: print("forks", flush=True))
    child = os.fork()
    if not child:
        os._exit(work.is_completed())
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("timeout_s", "takes_part"), [(60, True), (0.01, False)])
def test_a_fork_waits_for_operations_but_not_for_ever(tmp_path: Path, timeout_s: float, takes_part: bool) -> None:
    forking, other = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(tmp_path), str(timeout_s)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        assert forking.stdout is not None
        assert forking.stdout.readline() == "forks\n"
        if takes_part:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
        assert forking.wait(60) == takes_part
    finally:
        for process in (forking, other):
            process.kill()
            process.communicate()
