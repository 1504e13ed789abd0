"""Where the steps of the members of a gang go: what messages, records and displays have of it. Pure."""

from enum import StrEnum

from msgspec import Struct

LOOKED_STEPS = 20
"""Steps that a member has to finish before it is compared."""


class StepTimes(Struct, frozen=True, gc=False):
    """Where the newest steps of a member went, in seconds for each step."""

    compute_s: float
    wait_s: float = 0.0
    """In collectives: for the slowest member, and for the network."""
    data_s: float = 0.0
    """Until a batch was there."""
    steps: int = LOOKED_STEPS
    """Steps that these are means of, without the shortest and the longest ones."""
    throttled_s: float = 0.0
    """How long a quota stopped the member's CPUs, in all of them together."""
    clock_limited: bool = False
    """Whether heat or power limits the clock of a GPU of the member."""
    resent: float = 0.0
    """The share of the TCP segments that its host, or its container, has sent again."""

    @property
    def work_s(self) -> float:
        """What the member takes without the others."""
        return self.compute_s + self.data_s


class SlowCause(StrEnum):
    """What a slow member does longer than the others."""

    DATA = "data"
    COMPUTE = "compute"
    QUOTA = "quota"
    """It computes longer, and a CPU quota stops it meanwhile."""
    GPU_CLOCK = "gpu_clock"
    """It computes longer, and the clock of its GPU is limited, unlike those of most others."""


class SlowMember(Struct, frozen=True):
    """The member that the others wait for."""

    rank: int
    work_s: float
    """How long it works in a step."""
    others_s: float
    """The median of that over the other members."""
    cause: SlowCause


class GangTimes(Struct, frozen=True):
    """Where the newest steps of all members of a gang went."""

    members: tuple[StepTimes, ...]
    """By rank."""
    slow: SlowMember | None = None
    """The member that the others wait for."""
