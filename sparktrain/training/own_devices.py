"""The cores, GPUs and other devices that the code of a user gets in this process. Imports no framework."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from sparktrain.base.control_groups import available_cores

VARIABLE = "CUDA_VISIBLE_DEVICES"
COMMAND = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
TIMEOUT_S = 20.0
"""The kernel may have to load the driver of idle GPUs first."""
_TORCH_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/dxg", "/dev/davinci_manager")
"""Files of hosts with devices for torch: of NVIDIA, AMD and Intel, those of WSL, and of Ascend."""


def own_cores() -> int:
    """The cores of this member's slot, as Spark and the local engine set them for native libraries."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) else available_cores()


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


def show_alone(gpus: str) -> None:
    """Have TensorFlow see these GPUs alone, comma-separated; none for an empty text. Call it before it is used."""
    os.environ[VARIABLE] = gpus


def has_torch_devices() -> bool:
    """Whether this host may have devices for torch. Blocks on the local disk."""
    return any(os.path.exists(device) for device in _TORCH_DEVICES)
