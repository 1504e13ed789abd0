"""Operations of Gloo that wait for ever, in real processes of PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.training.frameworks.torch.stuck_operations import STATUS

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

PROGRAM = """
import sys
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist

from sparktrain.training.frameworks.torch.gloo_threads import busy_threads
from sparktrain.training.frameworks.torch.stuck_operations import end_if_stuck

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
assert not list(busy_threads()), "no operation runs"
if rank:
    sys.stdin.read()  # it takes no part
else:
    closed, is_left = map(int, sys.argv[3:])
    end_if_stuck(SimpleNamespace(are_closed=bool(closed)), lambda: not is_left)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    deadline = time.monotonic() + 30
    while not list(busy_threads()):  # its thread may start later
        assert time.monotonic() < deadline, "it waits for the other process"
    sys.stdin.read()
"""


@pytest.mark.parametrize(("closed", "is_left", "status"), [(1, 0, STATUS), (0, 0, None), (1, 1, None)])
def test_a_process_ends_that_waits_on_closed_connections(
    tmp_path: Path, closed: int, is_left: int, status: int | None
) -> None:
    places = [["0", str(tmp_path / "store"), str(closed), str(is_left)], ["1", str(tmp_path / "store")]]
    waiting, other = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, *place], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for place in places
    ]
    try:
        if status is None:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(12)
        else:
            assert waiting.wait(60) == status
            assert waiting.stderr is not None
            assert b"an operation of Gloo waits on connections that are closed" in waiting.stderr.read()
    finally:
        for process in (waiting, other):
            process.kill()
            process.communicate()
