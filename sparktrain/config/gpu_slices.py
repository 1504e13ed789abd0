"""How slots share GPUs where each member may use a part of the memory of one."""

from collections.abc import Mapping

from sparktrain.base import formatting
from sparktrain.config.quantities import MIB
from sparktrain.errors import ResourceError


def slice_text(mib: int) -> str:
    """`gpu_memory (8.0 GiB)`, as messages start."""
    return f"gpu_memory ({formatting.size(mib * MIB)})"


def slice_in_pool(slice_mib: int, pool: int) -> int:
    """MiB for each member of a call that wants `slice_mib`, in a pool of agents with `pool` each; 0 is all of a GPU.

    Raises ResourceError for more than the pool's agents have.
    """
    if slice_mib <= pool:
        return slice_mib or pool
    offer = f"have {formatting.size(pool * MIB)} each" if pool else "share no GPUs"
    raise ResourceError(
        f"{slice_text(slice_mib)} is more than the agents of the pool may use, which {offer}: pass gpu_memory= to "
        "pool(), as much as the largest call needs"
    )


def gpu_of_each_slot(totals: Mapping[str, int], slots: int, slice_mib: int) -> tuple[str, ...]:
    """The GPU of each slot: the one with the fewest slots, as long as another slice of its memory is free.

    `totals` has the MiB of each GPU. Raises ResourceError where the slices do not fit.
    """
    subject = slice_text(slice_mib)
    if not totals:
        raise ResourceError(
            f"{subject} is a part of a GPU, and this machine has none that nvidia-smi or CUDA_VISIBLE_DEVICES names: "
            "leave gpu_memory out, or use a machine or a cluster with GPUs"
        )
    for name, total in totals.items():
        if not total:
            raise ResourceError(
                f"{subject} needs to know how much memory GPU {name} has, and nvidia-smi does not report it: check "
                "that nvidia-smi works here, or leave gpu_memory out"
            )
    room = {name: total // slice_mib for name, total in totals.items()}
    fit = sum(room.values())
    sizes = ", ".join(formatting.size(total * MIB) for total in totals.values())
    if not fit:
        raise ResourceError(f"{subject} is more than a GPU of this machine has ({sizes}): lower it")
    if fit < slots:
        raise ResourceError(
            f"{subject} for each of {slots} slots is more than the memory of {formatting.count(len(totals), 'GPU')} of "
            f"this machine ({sizes}): lower it, or use local(slots={fit}) (--slots {fit})"
        )
    held = dict.fromkeys(totals, 0)
    chosen = []
    for _ in range(slots):
        free = [name for name in totals if held[name] < room[name]]
        name = min(free, key=lambda gpu: held[gpu])
        held[name] += 1
        chosen.append(name)
    return tuple(chosen)
