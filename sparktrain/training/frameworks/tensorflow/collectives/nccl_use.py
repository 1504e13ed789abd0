"""Whether the members of a gang reduce by NCCL: each needs a GPU of its own, for NCCL refuses two members on one.

Every member shares the UUID of its GPU before the ring connects, and all decide alike by what all have shared.
"""

from collections.abc import Mapping

from sparktrain.training.collectives.backend import Joining

GPU = "gpu/"
"""Prefix of the key by which a member shares the UUID of its GPU; its rank follows."""


def offered(joining: Joining, uuid: bytes) -> dict[str, bytes]:
    """What this member shares; nothing where it cannot use NCCL."""
    return {f"{GPU}{joining.formation.rank}": uuid} if uuid else {}


def pop_uuids(shared: dict[str, bytes], offers: Mapping[str, bytes]) -> list[bytes]:
    """The UUIDs of all members that can use NCCL, in no order; takes those of the others out of `shared`."""
    other_uuids = [shared.pop(key) for key in list(shared) if key.startswith(GPU)]
    return [*offers.values(), *other_uuids]
