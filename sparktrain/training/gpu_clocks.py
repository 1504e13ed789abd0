"""Whether something limits the clocks of this member's GPUs: heat, power, or their hardware."""

import os
import subprocess
from collections.abc import Sequence

from sparktrain.base.clock import pause
from sparktrain.base.threads import spawn

COMMAND = ("nvidia-smi", "--query-gpu=clocks_throttle_reasons.active", "--format=csv,noheader", "--id")
TIMEOUT_S = 20.0
LOOK_S = 10.0
_LIMITS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Power cap, slowdown by hardware, heat by software and by hardware, and power brake. An idle GPU and a clock that
its owner has set are no limits."""


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
