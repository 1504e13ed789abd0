"""Which GPU a member trains on, and whether each member has one of its own: NCCL refuses two members on one."""

import ctypes
from collections.abc import Sequence

_UUID_BYTES = 16


def gpu_uuid(number: int = 0) -> bytes:
    """The UUID of a GPU that this process may use, as CUDA's driver knows it; empty where there is none.

    `number` counts those that the process sees. Call it once the devices of the process are chosen: it initialises
    CUDA, without a context. An instance of a GPU that its driver makes (MIG) has a UUID of its own.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return b""
    device = ctypes.c_int()
    uuid = ctypes.create_string_buffer(_UUID_BYTES)
    ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), number) or ask(uuid, device):
        return b""
    return uuid.raw


def each_has_its_own(uuids: Sequence[bytes], size: int) -> bool:
    """Whether all `size` members have shared the UUID of a GPU, and no two the same. An empty one is none."""
    present = [uuid for uuid in uuids if uuid]
    return len(present) == len(set(present)) == size
