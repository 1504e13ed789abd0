"""What a container limits, from the files of both versions of Linux's control groups, as real hosts have them."""

import os
from pathlib import Path

import pytest

from sparktrain.base.control_groups import available_cores, available_memory, memory_kills_file

GIB = 2**30
CORES = len(os.sched_getaffinity(0))
V2 = "0::/kubepods/pod7/main\n"
V1 = "9:memory:/kubepods/pod7/main\n2:cpuacct,cpu:/kubepods/pod7/main\n0::/\n"


class Linux:
    """Its files as a process sees them."""

    def __init__(self, folder: Path, memberships: str) -> None:
        self.process, self.groups = folder / "proc", folder / "cgroup"
        self.process.mkdir()
        (self.process / "cgroup").write_text(memberships)

    def write(self, group: str, **values: str) -> None:
        """The values of files of a group, and of the mount that it is below."""
        folder = self.groups / group
        folder.mkdir(parents=True, exist_ok=True)
        for place in (folder, *folder.parents):
            if place.is_relative_to(self.groups):
                (place / "cgroup.procs").touch()
        for name, value in values.items():
            (folder / name.replace("__", ".")).write_text(f"{value}\n")

    @property
    def cores(self) -> int:
        return available_cores(self.process, self.groups)


def test_a_quota_of_cpu_time_is_worth_whole_cores(tmp_path: Path) -> None:
    linux = Linux(tmp_path, V2)
    linux.write("kubepods/pod7/main", cpu__max="max 100000")
    assert linux.cores == CORES
    linux.write("kubepods/pod7/main", cpu__max="50000 100000")
    assert linux.cores == 1, "at least one"
    linux.write("kubepods/pod7/main", cpu__max=f"{CORES * 250_000} 100000")
    assert linux.cores == CORES, "no more than there are"


@pytest.mark.parametrize("group", ["kubepods/pod7/main", "kubepods/pod7", "."])
def test_the_least_quota_around_a_process_counts_in_version_2(tmp_path: Path, group: str) -> None:
    linux = Linux(tmp_path, V2)
    linux.write(group, cpu__max="190000 100000")
    assert linux.cores == 1


@pytest.mark.parametrize(
    ("mount", "group"), [("cpu", "kubepods/pod7/main"), ("cpu,cpuacct", "."), ("cpuacct,cpu", ".")]
)
def test_a_quota_counts_in_version_1(tmp_path: Path, mount: str, group: str) -> None:
    linux = Linux(tmp_path, V1)
    linux.write(f"{mount}/{group}", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert linux.cores == CORES
    linux.write(f"{mount}/{group}", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert linux.cores == 1


def test_a_limit_of_memory_counts_without_the_files_that_the_kernel_keeps_in_version_2(tmp_path: Path) -> None:
    linux = Linux(tmp_path, V2)
    stat = f"anon {GIB // 4}\ninactive_file {GIB // 4}"
    linux.write("kubepods/pod7/main", memory__max=str(GIB), memory__current=str(GIB // 2), memory__stat=stat)
    memory = available_memory(linux.process, linux.groups)
    assert (memory.total_bytes, memory.free_bytes) == (GIB, 3 * GIB // 4)


def test_a_limit_of_memory_counts_without_the_files_that_the_kernel_keeps_in_version_1(tmp_path: Path) -> None:
    linux = Linux(tmp_path, V1)
    stat = f"inactive_file 0\ntotal_inactive_file {GIB // 4}"
    linux.write("memory", memory__limit_in_bytes=str(GIB), memory__usage_in_bytes=str(GIB), memory__stat=stat)
    memory = available_memory(linux.process, linux.groups)
    assert (memory.total_bytes, memory.free_bytes) == (GIB, GIB // 4)


@pytest.mark.parametrize(
    ("memberships", "group", "limit"),
    [(V2, "kubepods/pod7/main", {"memory__max": "max"}), (V1, "memory", {"memory__limit_in_bytes": str(2**63 - 4096)})],
)
def test_a_group_without_a_limit_has_the_memory_of_its_host(
    tmp_path: Path, memberships: str, group: str, limit: dict[str, str]
) -> None:
    linux = Linux(tmp_path, memberships)
    linux.write(group, memory__current="1", memory__usage_in_bytes="1", **limit)
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert available_memory(linux.process, linux.groups).total_bytes == host
    assert 0 < available_memory(tmp_path, tmp_path).free_bytes < host


@pytest.mark.parametrize(
    ("memberships", "group", "name"),
    [
        (V2, "kubepods/pod7/main", "memory__events"),
        (V2, ".", "memory__events"),
        (V1, "memory/kubepods/pod7/main", "memory__oom_control"),
        (V1, "memory", "memory__oom_control"),
    ],
)
def test_what_the_kernel_ends_for_lack_of_memory_is_counted_in_the_group(
    tmp_path: Path, memberships: str, group: str, name: str
) -> None:
    linux = Linux(tmp_path, memberships)
    linux.write(group, memory__current="1", memory__usage_in_bytes="1")
    assert memory_kills_file(linux.process, linux.groups) is None
    linux.write(group, **{name: "under_oom 0\noom_kill 3"})
    file = memory_kills_file(linux.process, linux.groups)
    assert file is not None
    assert file == linux.groups / group / name.replace("__", ".")
