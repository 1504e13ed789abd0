"""What holds a member back, from the counters of its host as Linux writes them."""

from pathlib import Path

import pytest

from sparktrain.state.gangs.step_times import StepTimes
from sparktrain.training.host_limits import HostLimits
from tests.unit.clocks import InstantClock

TIMES = StepTimes(0.08, 0.01, 0.01, steps=20)
"""20 steps of 0.1 s."""


class Host:
    """The files of a process that Linux shows, in one of the versions of control groups."""

    def __init__(self, root: Path, memberships: str, group: str) -> None:
        self.process = root / "proc"
        self.groups = root / "cgroup"
        self.folder = self.groups / group
        (self.process / "net").mkdir(parents=True)
        self.folder.mkdir(parents=True)
        (self.process / "cgroup").write_text(memberships)
        for parent in (self.folder, *self.folder.parents):
            if parent.is_relative_to(self.groups):
                (parent / "cgroup.procs").touch()
        self.clock = InstantClock()
        self.limits = HostLimits(self.process, self.groups, self.clock)

    def times_after(self, seconds: float, stat: str, sent: int = 0, resent: int = 0) -> StepTimes:
        self.clock.pause(seconds)
        (self.folder / "cpu.stat").write_text(stat)
        (self.process / "net" / "snmp").write_text(
            f"Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 {sent} {resent}\n"
        )
        return self.limits.added_to(TIMES)


@pytest.mark.parametrize(
    ("memberships", "group", "unit"),
    [
        ("0::/pod/member\n", "pod/member", "throttled_usec {}000000"),
        ("0::/pod/member\n", "pod", "throttled_usec {}000000"),
        ("0::/../elsewhere\n", ".", "throttled_usec {}000000"),
        ("4:memory:/x\n1:cpu:/pod\n0::/\n", "cpu/pod", "throttled_time {}000000000"),
        ("2:cpuacct,cpu:/pod\n", "cpuacct,cpu/pod", "throttled_time {}000000000"),
    ],
)
def test_the_time_that_a_quota_stops_a_member_is_that_of_its_newest_steps(
    tmp_path: Path, memberships: str, group: str, unit: str
) -> None:
    host = Host(tmp_path, memberships, group)
    stat = f"nr_throttled 9\n{unit}\n"
    assert host.times_after(0.0, stat.format(100)) == TIMES, "there is nothing to compare with"
    assert host.times_after(10.0, stat.format(100)).throttled_s == 0
    assert host.times_after(1.0, stat.format(101)).throttled_s == pytest.approx(0.1)
    assert host.times_after(1.0, stat.format(101)).throttled_s == pytest.approx(0.05), "over the last 2 s"


def test_segments_that_are_sent_again_are_counted_by_share(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/\n", ".")
    host.times_after(0.0, "", 10_000, 100)
    assert host.times_after(1.0, "", 30_000, 600).resent == pytest.approx(0.025)
    assert host.times_after(9.0, "", 39_000, 1600).resent == 0, "too few"


def test_a_host_without_these_files_shows_nothing(tmp_path: Path) -> None:
    limits = HostLimits(tmp_path / "proc", tmp_path / "cgroup", clock := InstantClock())
    for _ in range(2):
        clock.pause(1.0)
        assert limits.added_to(TIMES) == TIMES
