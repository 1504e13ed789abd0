"""Families of processes."""

import os
import subprocess

from sparktrain import reaper
from sparktrain.testing.processes import wait_until


def test_descendants_are_children_and_what_these_have_started_in_sessions_of_their_own() -> None:
    with subprocess.Popen(["sh", "-c", "setsid sleep 60 & wait"]) as parent:
        try:
            below = f"the child of {parent.pid} is there"
            wait_until(lambda: len(reaper.descendants() - {parent.pid}) >= 1, 10.0, below)
            found = reaper.descendants()
            assert parent.pid in reaper.children() & found
            others = found - reaper.children()
            assert [os.getpgid(pid) != os.getpgid(0) for pid in others] == [True]
        finally:
            reaper.cull(reaper.descendants())
