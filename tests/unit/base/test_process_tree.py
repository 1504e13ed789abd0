"""Process trees."""

import os
import subprocess

from sparktrain.base import process_tree
from tests.support.processes import wait_until


def _leads_a_group(pid: int) -> bool:
    return os.getpgid(pid) == pid


def test_descendants_include_grandchildren_in_other_sessions() -> None:
    with subprocess.Popen(["sh", "-c", "setsid sleep 60 & wait"]) as parent:
        try:
            below = f"the child of {parent.pid} has its own session"
            wait_until(lambda: any(map(_leads_a_group, process_tree.descendants() - {parent.pid})), 10.0, below)
            found = process_tree.descendants()
            assert parent.pid in process_tree.children() & found
            others = found - process_tree.children()
            assert [os.getpgid(pid) != os.getpgid(0) for pid in others] == [True]
        finally:
            process_tree.cull(process_tree.descendants())
