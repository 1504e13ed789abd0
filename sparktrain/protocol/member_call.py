"""The call of the training function in one member: what the coordinator decides, and the member's process needs.

It travels in `StartMember`, beside what only the agent uses, such as the settings of the store, and from there in
`Assignment`, beside paths of the agent's host.
"""

from typing import Any

from msgspec import Struct, field

from sparktrain.config.backends import Backend
from sparktrain.config.gang_options import MEMBER_DEFAULTS, MemberKeywords
from sparktrain.config.replication import Replica
from sparktrain.datasets.manifest import MemberData
from sparktrain.protocol.feed_messages import MemberStreams
from sparktrain.protocol.server_keys import ServerKeys


class MemberGang(Struct, frozen=True, kw_only=True):
    """The gang of a member, and how the member connects to it."""

    size: int = 1
    """Members in the gang."""
    backend: Backend = Backend.NONE
    may_grow: bool = False
    """The gang is smaller than it could be: its members look for `AskSnapshot`."""
    may_shrink: bool = False
    """The gang may continue smaller: what members compute in their steps must not depend on its size for good."""
    port: int = 0
    """The port of its address by which the others know this member already; 0: any free one."""
    ring: int = 0
    """Number of the ring that this member joins first: above 0, the others have trained in those before, and give it
    their state."""
    prepared: bool = False
    """The others train: the process runs the function up to its ring, and waits there for its place in the next one."""
    local_steps: int | None = None
    """Steps that a member trains by itself between two averages; None: gradients are averaged."""
    servers: ServerKeys = ServerKeys()


class MemberCall(Struct, frozen=True, kw_only=True):
    """The arguments of the training function in one member, its data, and its gang."""

    params: dict[str, Any]
    seed: int
    metric: str | None = None
    """Metric that the result must contain; None where any result is valid."""
    judged: bool = False
    """Rules of the run judge the reports of this member."""
    replica: Replica = Replica()
    """Which of the trials with the same parameters it is."""
    gpu_mib: int = 0
    """MiB of each of its GPUs that TensorFlow may use; 0: all."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of the user, perhaps secrets: never written or logged."""
    data: MemberData = MemberData()
    streams: MemberStreams = MemberStreams()
    gang: MemberGang = MemberGang()
    options: MemberKeywords = MEMBER_DEFAULTS
    """What its agent and its process read as the user has set it."""
