"""Families of processes."""

import os
import subprocess

from sparktrain import process_tree
from tests.support.processes import wait_until


def test_descendants_are_children_and_what_these_have_started_in_sessions_of_their_own() -> None:
    def others() -> list[int]:
        return [pid for pid in process_tree.descendants() - process_tree.children() if os.getpgid(pid) != os.getpgid(0)]

    with subprocess.Popen(["sh", "-c", "setsid sleep 60 & wait"]) as parent:
        try:
            wait_until(lambda: others(), 10.0, f"the child of {parent.pid} is in a session of its own")
            assert parent.pid in process_tree.children() & process_tree.descendants()
            assert len(others()) == 1
        finally:
            process_tree.cull(process_tree.descendants())
