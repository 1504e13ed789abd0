"""Families of processes."""

import os
import subprocess

from sparktrain import process_tree
from tests.support.processes import wait_until


def test_descendants_are_children_and_what_these_have_started_in_sessions_of_their_own() -> None:
    with subprocess.Popen(["sh", "-c", "setsid sleep 60 & wait"]) as parent:
        try:
            below = f"the child of {parent.pid} is there"
            wait_until(lambda: len(process_tree.descendants() - {parent.pid}) >= 1, 10.0, below)
            found = process_tree.descendants()
            assert parent.pid in process_tree.children() & found
            others = found - process_tree.children()
            assert [os.getpgid(pid) != os.getpgid(0) for pid in others] == [True]
        finally:
            process_tree.cull(process_tree.descendants())
