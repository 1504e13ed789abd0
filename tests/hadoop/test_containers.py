"""What containers leave is found by where they were started, and ended, whatever session it is in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hadoop.containers import ContainerGuard
from tests.support.processes import Sighted, kill

BREED = """
from subprocess import DEVNULL, Popen
print(Popen(["sleep", "600"], stdout=DEVNULL, start_new_session=True).pid)
"""
GUARD = """
from pathlib import Path
from tests.support.hadoop.containers import ContainerGuard
guard = ContainerGuard(Path({place!r}))
guard.start()
print(flush=True)
input()
"""

pytestmark = pytest.mark.rig


def grandchild(place: Path) -> Sighted:
    """A process that left the container which started it, and that container's session."""
    env = {**os.environ, "LOCAL_DIRS": f"{place}/nodemanager0/usercache"}
    done = subprocess.run([sys.executable, "-c", BREED], env=env, stdout=subprocess.PIPE, check=True)
    return Sighted([int(done.stdout)])


def test_what_a_container_left_is_ended_and_that_of_others_is_not(tmp_path: Path) -> None:
    mine, other = grandchild(tmp_path / "local"), grandchild(tmp_path / "local-too")
    try:
        ContainerGuard(tmp_path / "local").end_containers()
        assert mine.wait_gone(1.0) < 1.0
        assert other.alive()
    finally:
        mine.kill()
        other.kill()


@pytest.mark.parametrize("killed", [True, False])
def test_containers_end_when_the_process_that_started_their_cluster_ends(tmp_path: Path, killed: bool) -> None:
    left = grandchild(tmp_path)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", GUARD.format(place=str(tmp_path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as starter:
            assert starter.stdout is not None
            starter.stdout.readline()
            assert left.alive()
            if killed:
                kill(starter.pid)
        assert left.wait_gone(10.0) < 10.0
    finally:
        left.kill()
