"""The cores, GPUs and other devices that the code of a user gets in this process. Imports no framework."""

import os

VARIABLE = "CUDA_VISIBLE_DEVICES"
_TORCH_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/dxg", "/dev/davinci_manager")
"""Files of hosts with devices for torch: of NVIDIA, AMD and Intel, those of WSL, and of Ascend."""


def own_cores() -> int:
    """The cores of this member's slot, as Spark and the local engine set them for native libraries."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) else len(os.sched_getaffinity(0))


def show_alone(gpus: str) -> None:
    """Have TensorFlow see these GPUs alone, comma-separated; none for an empty text. Call it before it is used."""
    os.environ[VARIABLE] = gpus


def has_torch_devices() -> bool:
    """Whether this host may have devices for torch. Blocks on the local disk."""
    return any(os.path.exists(device) for device in _TORCH_DEVICES)
