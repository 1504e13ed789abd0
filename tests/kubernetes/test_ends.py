"""A cluster leaves nothing on this machine, in whatever way the process ends that has started it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.kubernetes import Kubernetes
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

GONE_S = 60.0
CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def starter(folder: Path) -> "Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]":
    """The process, and what it has printed once its cluster stands."""
    line = [sys.executable, "-m", "tests.kubernetes.starter", str(folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def network_of(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return "gone"


def networks(name: str) -> set[str]:
    """The network namespaces of processes that name a cluster's folder or cgroup."""
    pids = [each.pid for each in psutil.process_iter(["cmdline"]) if name in " ".join(each.info["cmdline"] or ())]
    return {network_of(pid) for pid in pids} - {network_of(os.getpid())}


def remains(shown: dict[str, Any], namespaces: set[str]) -> list[str]:
    """What is there of a cluster: processes, network interfaces, mounts, cgroups, and its folder."""
    name = shown["name"]
    processes = [
        f"{each.pid}: {' '.join(each.info['cmdline'] or ())[:200]}"
        for each in psutil.process_iter(["cmdline"])
        if name in " ".join(each.info["cmdline"] or ()) or network_of(each.pid) in namespaces
    ]
    links = [path.name for path in Path("/sys/class/net").iterdir() if path.name == shown["link"]]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if name in line]
    cgroups = [str(path) for path in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if path.exists()]
    folders = [shown["folder"]] if Path(shown["folder"]).exists() else []
    return [*processes, *links, *mounts, *cgroups, *folders]


@pytest.mark.parametrize("end", ["end of its block", "Ctrl-C", "kill -9"])
def test_nothing_is_left(end: str, kubernetes: Kubernetes, tmp_path: Path) -> None:
    with starter(tmp_path / "cluster") as (process, shown):
        namespaces = networks(shown["name"])
        assert len(namespaces) == 2  # that of the control plane, and that of the node
        assert len(remains(shown, namespaces)) > 10
        assert shown["taints"] == [{"key": "dedicated", "value": "training", "effect": "PreferNoSchedule"}]
        assert shown["name"] != kubernetes.place.name
        if end == "end of its block":
            process.communicate(timeout=GONE_S)
        else:
            process.send_signal(signal.SIGINT if end == "Ctrl-C" else signal.SIGKILL)
            process.wait(GONE_S)
        with suppress(AssertionError):
            wait_until(lambda: not remains(shown, namespaces), GONE_S, "nothing is left")
        assert remains(shown, namespaces) == []
    assert kubernetes.wait_ready() < 1  # of another cluster, nothing has gone
