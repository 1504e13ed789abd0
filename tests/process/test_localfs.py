"""A store in a directory, written by processes that die or have no permission."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.store.localfs import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "runs")


def test_a_process_that_dies_before_it_publishes_leaves_nothing(store: LocalStore) -> None:
    script = (
        "import os, signal, sys; from sparktrain.store.localfs import LocalStore;"
        "os.link = lambda *paths: os.kill(os.getpid(), signal.SIGKILL);"
        "LocalStore(sys.argv[1]).put_if_absent('run/results.json', b'{}')"
    )
    ended = subprocess.run([sys.executable, "-c", script, store.where()], timeout=60)
    assert ended.returncode == -9
    assert store.list() == []
    assert store.put_if_absent("run/results.json", b"{}") is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_probe_without_permission() -> None:
    script = (
        "import os; from sparktrain.store.localfs import LocalStore; from sparktrain.errors import RunDirectoryError\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: LocalStore('/var/sparktrain-test/runs').probe()\n"
        "except RunDirectoryError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True)
    assert (
        f"cannot be written by user {pwd.getpwuid(65534).pw_name}: permission denied for /var/sparktrain-test; choose"
        in ended.stdout
    )
