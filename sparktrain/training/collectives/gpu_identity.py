"""Which GPU a member trains on, and whether each member has one of its own: NCCL refuses two members on one."""

import ctypes
from collections.abc import Mapping, Sequence

from sparktrain.training.collectives.backend import Joining

GPU = "gpu/"
"""Prefix of the key by which a member shares the UUID of its GPU; its rank follows."""
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


def offered(joining: Joining, uuid: bytes) -> dict[str, bytes]:
    """What this member shares before the ring connects, so that all decide alike; nothing where it cannot use NCCL."""
    return {f"{GPU}{joining.formation.rank}": uuid} if uuid else {}


def pop_uuids(shared: dict[str, bytes], offers: Mapping[str, bytes]) -> list[bytes]:
    """The UUIDs of all members that can use NCCL, in no order; takes those of the others out of `shared`."""
    other_uuids = [shared.pop(key) for key in list(shared) if key.startswith(GPU)]
    return [*offers.values(), *other_uuids]
