"""Names the GPUs of an agent so that all processes of its host agree, and finds out how much memory they have."""

import subprocess
from collections.abc import Sequence

from msgspec import Struct

COMMAND = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
TIMEOUT_S = 20.0
"""`nvidia-smi` may have to load the driver of idle GPUs first."""


class Device(Struct, frozen=True):
    """One GPU of this host."""

    name: str
    """Its UUID, or its address where that is unknown."""
    mib: int = 0
    """MiB of its memory; 0 where that is unknown."""


def devices(addresses: tuple[str, ...], command: Sequence[str] = COMMAND) -> tuple[Device, ...]:
    """The GPUs at these addresses of Spark or of `CUDA_VISIBLE_DEVICES`: indexes, or UUIDs or the start of them.

    With isolated GPUs each container counts its own from 0; the UUID is the same for all. Blocks while `nvidia-smi`
    runs, at most 20 s; without its answer the addresses stay, and the memory is unknown.
    """
    if not addresses:
        return ()
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        printed = ""
    readings = [_read(line) for line in printed.splitlines()]
    return tuple(_at(address, [reading for reading in readings if reading is not None]) for address in addresses)


def _read(line: str) -> tuple[str, Device] | None:
    """Index and device of a line that `nvidia-smi` prints; None for another line, such as an error."""
    index, *fields = (word.strip() for word in line.split(","))
    if not fields or not fields[0]:
        return None
    return index, Device(fields[0], int(fields[1]) if len(fields) > 1 and fields[1].isdecimal() else 0)


def _at(address: str, gpus: Sequence[tuple[str, Device]]) -> Device:
    by_uuid = address.startswith("GPU-")
    matches = (gpu for index, gpu in gpus if (gpu.name.startswith(address) if by_uuid else index == address))
    return next(matches, Device(address))
