"""Whether the members of a gang reduce by NCCL: each needs a GPU of its own, for NCCL refuses two members on one.

Every member shares the UUID of its GPU before the ring connects, and all decide alike by what all have shared.
"""

import ctypes
from collections.abc import Mapping

from sparktrain.training.collectives.backend import Joining

GPU = "gpu/"
"""Prefix of the key by which a member shares the UUID of its GPU; its rank follows."""

_UUID_BYTES = 16


def gpu_uuid() -> bytes:
    """The UUID of the first GPU that this process may use, as CUDA's driver knows it; empty without a GPU.

    Call it once the devices of the process are chosen: it initialises CUDA. An instance of a GPU that its driver makes
    (MIG) has a UUID of its own.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return b""
    device = ctypes.c_int()
    uuid = ctypes.create_string_buffer(_UUID_BYTES)
    ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or ask(uuid, device):
        return b""
    return uuid.raw


def offered(joining: Joining, uuid: bytes) -> dict[str, bytes]:
    """What this member shares; nothing where it cannot use NCCL."""
    return {f"{GPU}{joining.formation.rank}": uuid} if uuid else {}


def pop_uuids(shared: dict[str, bytes], offers: Mapping[str, bytes]) -> list[bytes]:
    """The UUIDs of all members that can use NCCL, in no order; takes those of the others out of `shared`."""
    other_uuids = [shared.pop(key) for key in list(shared) if key.startswith(GPU)]
    return [*offers.values(), *other_uuids]


def each_has_its_own(uuids: list[bytes], size: int) -> bool:
    """Whether all `size` members have shared a GPU, and no two the same."""
    return len(uuids) == len(set(uuids)) == size
