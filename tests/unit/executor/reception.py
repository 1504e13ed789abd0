"""The coordinator's side of agents, as far as an agent can see it."""

import asyncio
from dataclasses import dataclass, field

from sparktrain.protocol import messages as m
from sparktrain.protocol.transport import Link, LinkClosedError


@dataclass
class Reception:
    """Welcomes agents, answers their heartbeats and checkpoints, and keeps all that they send."""

    heartbeat_s: float = 60.0
    lease_s: float = 600.0
    answers: bool = True
    """Whether heartbeats are answered."""
    heard: list[m.Message] = field(default_factory=list)
    links: "asyncio.Queue[Link]" = field(default_factory=asyncio.Queue)
    """The streams of agents, in the order in which they came."""

    async def serve(self, link: Link) -> None:
        """Serve one agent until its stream ends."""
        self.links.put_nowait(link)
        try:
            while True:
                message = await link.receive()
                self.heard.append(message)
                match message:
                    case m.Join():
                        link.post(m.Welcome(self.heartbeat_s, self.lease_s, ()))
                    case m.Heartbeat() if self.answers:
                        link.post(m.HeartbeatAck())
                    case m.CheckpointStored(member=member, checkpoint=checkpoint):
                        link.post(m.AckCheckpoint(member, checkpoint))
        except LinkClosedError:
            pass
