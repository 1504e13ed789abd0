"""Whether PyTorch may find devices on this host. Imports no framework."""

import os

_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/dxg", "/dev/davinci_manager")
"""Files of hosts with devices for torch: of NVIDIA, AMD and Intel, those of WSL, and of Ascend."""


def has_devices() -> bool:
    """Whether this host may have devices for torch. Blocks on the local disk."""
    return any(os.path.exists(device) for device in _DEVICES)
