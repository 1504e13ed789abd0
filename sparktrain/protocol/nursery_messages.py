"""Every message between a driver and the process that starts its agents on this machine, over their socket pair.

driver <-- FromNursery -- nursery
driver --- ToNursery ---> nursery
"""

from sparktrain.base.ids import SparkTask
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.state.message import Message


class SpawnAgent(Message, frozen=True, tag=True):
    """Fork one agent. `AgentExited` follows."""

    slot: int
    task: SparkTask
    """Identifies this process to the driver: a restarted agent has another one."""
    ticket: AgentTicket
    """Holds a key: sent over the socket pair only."""
    cpus: int
    """Cores that the agent may use."""
    gpus: tuple[str, ...] | None = None
    """GPUs that it may use, as of `CUDA_VISIBLE_DEVICES`; None where this machine has none to share."""
    gpu_totals: tuple[int, ...] = ()
    """MiB of each of them, where agents share them."""
    preload: tuple[str, ...] = ()
    """Modules that the nursery imports before it forks the first agent, in place of each zygote."""


ToNursery = SpawnAgent


class AgentExited(Message, frozen=True, tag=True):
    """The process of an agent is gone."""

    slot: int
    task: SparkTask
    status: int
    """As of `os.waitstatus_to_exitcode`."""
    reason: str = ""
    """Why the agent left; empty where it did not leave by itself."""
    reached: bool = False
    """It had reached the coordinator."""
    memory_kills: int | None = None
    """How many processes of the host the kernel has ended for lack of memory since it started; None: unknown."""


FromNursery = AgentExited
