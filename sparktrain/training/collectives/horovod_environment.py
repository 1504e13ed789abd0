"""The environment variables that Horovod and NCCL read when a member connects. Imports nothing of Horovod."""

import os

from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier


def horovod_environment(
    formation: Formation, address: tuple[str, int], *, timeout_s: float, operation_s: float
) -> dict[str, str]:
    """The variables for a member that finds the others by the server at `address`. Raises FormError.

    `timeout_s` is how long Gloo waits for a member that does not answer, `operation_s` how long an operation waits for
    one that does not call it.
    """
    wait_s = barrier.whole_seconds(operation_s)
    interface = barrier.interface_of(formation)
    values = {
        "RANK": formation.rank,
        "SIZE": formation.size,
        "LOCAL_RANK": formation.local_rank,
        "LOCAL_SIZE": formation.local_size,
        "CROSS_RANK": formation.cross_rank,
        "CROSS_SIZE": formation.cross_size,
        "HOSTNAME": formation.mine.host,
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
        "GLOO_RENDEZVOUS_ADDR": address[0],
        "GLOO_RENDEZVOUS_PORT": address[1],
        "GLOO_IFACE": interface,
        "GLOO_TIMEOUT_SECONDS": barrier.whole_seconds(timeout_s),
        # Only with the patch of `scripts/build_horovod.sh`: under Gloo, Horovod's stall check counts no ranks and never
        # acts.
        "STALL_CHECK_TIME_SECONDS": max(1, wait_s // 2),
        "STALL_SHUTDOWN_TIME_SECONDS": max(2, wait_s),  # must be more than the check's
    }
    nccl = {} if "NCCL_SOCKET_IFNAME" in os.environ else {"NCCL_SOCKET_IFNAME": f"={interface}"}
    return {f"HOROVOD_{name}": str(value) for name, value in values.items()} | nccl
