"""What holds a member back beside its own work, by its host: CPU quotas, clocks of GPUs, and segments sent again."""

import os
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.clock import Clock, SystemClock, pause
from sparktrain.base.control_groups import GROUPS, PROCESS, content, group_folders
from sparktrain.base.threads import spawn
from sparktrain.state.gangs.step_times import StepTimes

COMMAND = ("nvidia-smi", "--query-gpu=clocks_throttle_reasons.active", "--format=csv,noheader", "--id")
TIMEOUT_S = 20.0
LOOK_S = 10.0
_LIMITS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Power cap, slowdown by hardware, heat by software and by hardware, and power brake. An idle GPU and a clock that
its owner has set are no limits."""
_READINGS = 64
_FEWEST_SEGMENTS = 10_000
"""Of fewer, lost connections of other programs may be a large part."""


class HostReading(Struct, frozen=True):
    """The counters at one moment."""

    at_s: float
    throttled_s: float
    """How long quotas have stopped the CPUs of this member's control groups."""
    sent: int
    """TCP segments of the host, or of its container."""
    resent: int
    """Those of them that were sent again."""


class HostLimits:
    """The newest counters. For the thread that trains; each reading takes about 0.1 ms."""

    def __init__(self, process: Path = PROCESS, groups: Path = GROUPS, clock: Clock | None = None) -> None:
        """`process` is the folder of this process in `/proc`, `groups` where control groups are mounted."""
        self._clock = clock or SystemClock()
        self._snmp = process / "net" / "snmp"
        self._stats = [folder / "cpu.stat" for folder in group_folders("cpu", process, groups)]
        self._clocks = GpuClocks()
        self._readings: deque[HostReading] = deque(maxlen=_READINGS)

    def added_to(self, times: StepTimes) -> StepTimes:
        """`times` with what has happened while these steps ran, as far as the host shows it."""
        self._clocks.start()
        step_s = times.work_s + times.wait_s
        newest = self._read()
        since_s = newest.at_s - step_s * times.steps
        earlier = [reading for reading in self._readings if reading.at_s >= since_s] or list(self._readings)[-1:]
        self._readings.append(newest)
        if not earlier or newest.at_s <= earlier[0].at_s:
            return replace(times, clock_limited=self._clocks.limited)
        base = earlier[0]
        throttled = (newest.throttled_s - base.throttled_s) / (newest.at_s - base.at_s)
        sent = newest.sent - base.sent
        return replace(
            times,
            clock_limited=self._clocks.limited,
            throttled_s=max(0.0, throttled * step_s),
            resent=(newest.resent - base.resent) / sent if sent >= _FEWEST_SEGMENTS else 0.0,
        )

    def _read(self) -> HostReading:
        throttled_s = sum(map(_throttled_s, self._stats))
        return HostReading(self._clock.now(), throttled_s, *_segments(self._snmp))


def _throttled_s(path: Path) -> float:
    counters = dict(line.split(" ", 1) for line in content(path).splitlines() if " " in line)
    microseconds = int(counters.get("throttled_usec", 0))
    return microseconds / 1e6 + int(counters.get("throttled_time", 0)) / 1e9


def _segments(path: Path) -> tuple[int, int]:
    """TCP segments that were sent, and those that were sent again."""
    rows = [line.split() for line in content(path).splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:
        return 0, 0
    counters = dict(zip(*rows, strict=False))
    return int(counters.get("OutSegs", 0)), int(counters.get("RetransSegs", 0))


class GpuClocks:
    """A thread looks every 10 s, and ends where `nvidia-smi` has no answer. For the thread that trains."""

    def __init__(self, gpus: str | None = None, command: Sequence[str] = COMMAND, look_s: float = LOOK_S) -> None:
        """`gpus` as in `CUDA_VISIBLE_DEVICES`; None: the value of that."""
        self._gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "") if gpus is None else gpus
        self._command = command
        self._look_s = look_s
        self._looks = False
        self.limited = False
        """Whether the clock of a GPU of this member is limited, by the newest look."""

    def start(self) -> None:
        """Start to look, where this member has GPUs. A second call does nothing."""
        if self._gpus and not self._gpus.startswith("-") and not self._looks:
            self._looks = True
            spawn(self._look, "sparktrain-gpu-clocks")

    def _look(self) -> None:
        while (masks := self._masks()) is not None:
            self.limited = any(mask & _LIMITS for mask in masks)
            pause(self._look_s)
        self.limited = False

    def _masks(self) -> list[int] | None:
        """The reasons that limit the clock of each GPU, as bits; None without an answer."""
        command = [*self._command, self._gpus]
        try:
            printed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
            return [int(line, 16) for line in printed.split()]
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
