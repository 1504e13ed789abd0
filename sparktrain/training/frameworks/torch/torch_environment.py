"""The environment of torchrun for a member of a gang, from which `init_process_group` connects. Imports no torch."""

import os
import sys
from collections.abc import Callable, Mapping

from sparktrain.state.topology import Formation
from sparktrain.training.collectives.barrier import interface_of

DEVICES = "CUDA_VISIBLE_DEVICES"
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK")
"""The variables that differ between members."""
_LIGHTNING_RANK = "lightning_utilities.core.rank_zero"


def enter(formation: Formation, generation: int) -> None:
    """Give this process the variables of `environment`, and its rank to Lightning. Raises FormError."""
    os.environ.update(environment(formation, generation))
    # Lightning reads RANK when it is imported: a zygote, which imports it for all members, has none.
    if (lightning := sys.modules.get(_LIGHTNING_RANK)) is not None:
        lightning.rank_zero_only.rank = formation.rank


def environment(formation: Formation, generation: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables for a member, once rank 0 serves the store on the port that it holds.

    Scripts choose their GPU by `LOCAL_RANK`: a member that sees only GPUs of its own is the first one there. What the
    user has set for Gloo and NCCL stays. Raises FormError.
    """
    chief = formation.places[0]
    machines = list(dict.fromkeys(place.machine for place in formation.places))
    has_own_devices = _sees_own_devices(formation, environ)
    values = {
        "RANK": formation.rank,
        "WORLD_SIZE": formation.size,
        "LOCAL_RANK": 0 if has_own_devices else formation.local_rank,
        "LOCAL_WORLD_SIZE": 1 if has_own_devices else formation.local_size,
        "GROUP_RANK": machines.index(formation.mine.machine),
        "GROUP_WORLD_SIZE": len(machines),
        "MASTER_ADDR": chief.address,
        "MASTER_PORT": chief.port,
        # Otherwise rank 0 would try to serve a second store on that port.
        "TORCHELASTIC_USE_AGENT_STORE": True,
        "TORCHELASTIC_RESTART_COUNT": generation - 1,
        # Lightning starts processes of its own where it does not see this one.
        "TORCHELASTIC_RUN_ID": "sparktrain",
    }
    interface = interface_of(formation)
    chosen = {name: interface for name in _INTERFACES if name not in environ}
    return {name: str(value) for name, value in values.items()} | chosen


def on_rank_read(callback: Callable[[], object] | None) -> None:
    """Call `callback` each time that code of Python reads one of the ranks in `os.environ`; None ends that.

    A copy of all variables counts, because the ranks are in it.
    """
    _NotingEnviron.callback = callback
    os.environ.__class__ = os._Environ if callback is None else _NotingEnviron


class _NotingEnviron(os._Environ[str]):
    """What `os.environ` is meanwhile: modules have imported the object, so that no other one can replace it."""

    callback: Callable[[], object] | None = None

    def __getitem__(self, key: str) -> str:
        callback = type(self).callback
        if key in _RANKS and callback is not None:
            callback()
        return super().__getitem__(key)


def _sees_own_devices(formation: Formation, environ: Mapping[str, str]) -> bool:
    """Whether this member sees fewer devices than its machine has members: then they are not those of all members."""
    devices = [device for device in environ.get(DEVICES, "").split(",") if device.strip()]
    return 0 < len(devices) < formation.local_size
