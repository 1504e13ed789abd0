"""What the control groups of this process limit, in both versions of Linux's interface: a container is one of them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

PROCESS = Path("/proc/self")
GROUPS = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_FOLDERS = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",)}
"""Where version 1 may mount a controller."""
_UNIFIED = ("", "unified")
"""Where version 2 may be mounted; the second beside version 1."""


class Memory(Struct, frozen=True):
    """Memory of this process's host, or of its container where that has less."""

    total_bytes: int
    free_bytes: int
    """What processes may still take; files that the kernel keeps in memory count as free."""


def group_folders(controller: str, process: Path = PROCESS, groups: Path = GROUPS) -> Iterator[Path]:
    """The folders of the groups in which a controller, `cpu` or `memory`, may hold this process, the innermost first.

    `process` is the folder of this process in `/proc`, `groups` where control groups are mounted.
    """
    for line in content(process / "cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        is_unified = not controllers
        if not is_unified and controller not in controllers.split(","):
            continue
        roots = [groups / folder for folder in (_UNIFIED if is_unified else _FOLDERS[controller])]
        root = next((folder for folder in roots if (folder / "cgroup.procs").exists()), None)
        if root is not None:
            # A process in a container may see its own control group as the root, under another name.
            folder = root / name.lstrip("/")
            yield from (parent for parent in (folder, *folder.parents) if parent.is_relative_to(root))


def available_cores(process: Path = PROCESS, groups: Path = GROUPS) -> int:
    """The cores that this process may use: threads for more than its quota of CPU time would only stop each other."""
    cores = len(os.sched_getaffinity(0))
    for folder in group_folders("cpu", process, groups):
        quota, _, period = content(folder / "cpu.max").strip().partition(" ")
        quota = quota or content(folder / "cpu.cfs_quota_us").strip()
        period = period or content(folder / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit():  # without a quota it is `max`, or -1
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def available_memory(process: Path = PROCESS, groups: Path = GROUPS) -> Memory:
    """The memory that this process may use."""
    host = dict(line.split(":", 1) for line in content(_MEMORY).splitlines())
    total, free = (int(host[name].removesuffix("kB")) * 1024 for name in ("MemTotal", "MemAvailable"))
    for folder in group_folders("memory", process, groups):
        limit = content(folder / "memory.max") or content(folder / "memory.limit_in_bytes")
        used = content(folder / "memory.current") or content(folder / "memory.usage_in_bytes")
        with suppress(ValueError):  # without a limit it is `max`
            total = min(total, int(limit))
            free = min(free, int(limit) - int(used) + _reclaimable(folder))
    return Memory(total, max(0, free))


def memory_kills_file(process: Path = PROCESS, groups: Path = GROUPS) -> Path | None:
    """The file in which the kernel counts the processes of this process's group, such as a container, that it has ended
    for lack of memory; None where there is none."""
    for folder in group_folders("memory", process, groups):
        for file in (folder / "memory.events", folder / "memory.oom_control"):
            if "oom_kill " in content(file):
                return file
    return None


def _reclaimable(folder: Path) -> int:
    """Bytes of files that the kernel drops first where memory is short."""
    counters = dict(line.split(" ", 1) for line in content(folder / "memory.stat").splitlines() if " " in line)
    # In version 1, the second is of this group without those in it.
    return int(counters.get("total_inactive_file", counters.get("inactive_file", "0")))


def content(path: Path) -> str:
    """What a file of the kernel has; empty where it cannot be read."""
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
