"""The GPUs of this machine, and how slots divide them: no GPU is in two slots."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise

from sparktrain.executor.devices import devices

COMMAND = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
VARIABLE = "CUDA_VISIBLE_DEVICES"
TIMEOUT_S = 20.0
"""The kernel may have to load the driver of idle GPUs first."""


def gpus_here(environ: Mapping[str, str] = os.environ, command: Sequence[str] = COMMAND) -> tuple[str, ...]:
    """The GPUs that this process may use: those that its environment names, else all that `nvidia-smi` lists.

    Blocks until `nvidia-smi` has answered. None where it is not installed or fails.
    """
    if VARIABLE in environ:
        names = [name.strip() for name in environ[VARIABLE].split(",")]
        # CUDA ignores what follows the first name that is not a GPU
        end = next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))
        return tuple(names[:end])
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in listed.splitlines() if line.strip())


def memory_of(gpus: tuple[str, ...]) -> dict[str, int]:
    """MiB of the memory of each of these GPUs; 0 where `nvidia-smi` does not report it, for which it blocks."""
    return {gpu: device.mib for gpu, device in zip(gpus, devices(gpus), strict=True)}


def share_out(gpus: tuple[str, ...], slots: int) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each slot: equal numbers, and one more for the first slots where they do not divide evenly."""
    share, remainder = divmod(len(gpus), slots)
    starts = [slot * share + min(slot, remainder) for slot in range(slots + 1)]
    return tuple(gpus[start:end] for start, end in pairwise(starts))
