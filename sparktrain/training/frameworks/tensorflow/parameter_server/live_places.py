"""Where the parameter servers of a gang are: one that is lost may restart on another host."""

from collections.abc import Callable
from dataclasses import dataclass

from sparktrain.config.gang_spec import Role
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import Endpoint


@dataclass(frozen=True)
class LivePlaces:
    """A gang, and what its coordinator reports about members that have restarted elsewhere."""

    formation: Formation
    moved: Callable[[int], MemberAddress | None]
    """The place of a rank now, where that is known. Any thread may ask; it does not block."""

    @property
    def servers(self) -> list[int]:
        """The ranks of the parameter servers."""
        return [rank for rank, place in enumerate(self.formation.places) if place.role is Role.PS]

    def endpoint(self, rank: int) -> Endpoint:
        """Where the server of `rank` listens now."""
        place = self.moved(rank) or self.formation.places[rank]
        return Endpoint(place.address, place.port)
