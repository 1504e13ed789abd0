"""The script that builds Kubernetes: what it needs of a machine, and that the cache has all programs or none."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.kubernetes.programs import programs

pytestmark = pytest.mark.kubernetes

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_kubernetes.sh"
GO = """#!/usr/bin/env bash
if [[ $1 = env ]]; then echo %s; exit; fi
while [[ $1 != -o ]]; do shift; done
mkdir "$2"
touch "$2/server"
echo "half way"
%s
touch "$2/kubelet"
"""


def build(folder: Path, version: str = "go1.26.8", half_way: str = "true", *before: str) -> tuple[int, str]:
    """Run the script with an empty cache and a Go of that version, which runs a command half way through its build."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    go = tools / "go"
    go.write_text(GO % (version, half_way))
    go.chmod(0o755)
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run([*before, SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_programs_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert build(tmp_path)[0] == 0
    assert sorted(path.name for path in programs().iterdir()) == ["etcd", "kubelet"]
    assert [path.name for path in programs().parent.iterdir() if path.name != ".lock"] == [programs().name]
    assert build(tmp_path, half_way="exit 1") == (0, "")


def test_a_build_that_fails_shows_its_lines_and_leaves_no_program(tmp_path: Path) -> None:
    status, output = build(tmp_path, half_way="exit 1")
    assert status == 1
    assert "half way" in output
    assert "kubernetes: build failed: the last lines of its output are above" in output
    assert [path.name for path in (tmp_path / "cache" / "sparktrain" / "kubernetes").iterdir()] == [".lock"]


def test_an_old_go_is_refused_with_the_version_that_is_needed(tmp_path: Path) -> None:
    status, output = build(tmp_path, version="go1.9.7")
    assert status == 2
    assert "Go is 1.9.7, and Kubernetes 1.36.3 needs 1.26 or newer: install it from https://go.dev/dl" in output


def test_a_machine_without_go_gets_the_next_step(tmp_path: Path) -> None:
    status, output = build(tmp_path, version="")
    assert status == 2
    assert "there is no Go: install Go 1.26 or newer from https://go.dev/dl, and put it on the PATH" in output


def test_a_user_without_root_gets_a_sentence_and_nothing_is_built(tmp_path: Path) -> None:
    status, output = build(tmp_path, "go1.26.8", "true", "unshare", "--user")
    assert status == 2
    assert output == "kubernetes: nodes need root, for their containers and networks: run it as root\n"
    assert not (tmp_path / "cache").exists()


def test_a_machine_without_cgroups_gets_a_sentence(tmp_path: Path) -> None:
    hide = "mount -t tmpfs tmpfs /sys/fs/cgroup && exec "
    status, output = build(tmp_path, "go1.26.8", "true", "unshare", "--mount", "sh", "-c", f'{hide} "$0"')
    assert status == 2
    assert "this machine has no cgroup of memory at /sys/fs/cgroup" in output
