"""Where the members of a formed gang are."""

import json

from msgspec import Struct

from sparktrain.config.gang_spec import Role


class MemberAddress(Struct, frozen=True):
    """One member of a gang, as the others reach it."""

    host: str
    """Name of its host, in a pod that of the node."""
    address: str
    """Its IP address, in a pod that of the pod."""
    port: int
    """Held by its process until its backend takes it."""
    role: Role

    @property
    def machine(self) -> tuple[str, str]:
        """Members of one machine see the same files, shared memory and GPUs. A pod is one, and a node has many."""
        return self.host, self.address


class Formation(Struct, frozen=True):
    """A whole gang, seen from one of its members."""

    rank: int
    places: tuple[MemberAddress, ...]
    """By rank; members of one machine need not be neighbours."""

    @property
    def size(self) -> int:
        """Members in the gang."""
        return len(self.places)

    @property
    def mine(self) -> MemberAddress:
        """This member."""
        return self.places[self.rank]

    @property
    def role(self) -> Role:
        """Role of this member."""
        return self.mine.role

    @property
    def index(self) -> int:
        """Number of this member among those of its role, from 0."""
        return sum(place.role is self.role for place in self.places[: self.rank])

    @property
    def local_rank(self) -> int:
        """Number of this member among those of its machine, from 0."""
        return sum(place.machine == self.mine.machine for place in self.places[: self.rank])

    @property
    def local_size(self) -> int:
        """Members on this machine."""
        return sum(place.machine == self.mine.machine for place in self.places)

    @property
    def cross_rank(self) -> int:
        """Number of this member's machine among those that have a member of this local rank, from 0."""
        return len(self._machines(self.rank))

    @property
    def cross_size(self) -> int:
        """Machines that have a member of this local rank."""
        return len(self._machines(self.size))

    def _machines(self, before: int) -> list[tuple[str, str]]:
        machines = []
        for rank, place in enumerate(self.places[:before]):
            if sum(earlier.machine == place.machine for earlier in self.places[:rank]) == self.local_rank:
                machines.append(place.machine)
        return machines

    def cluster(self) -> dict[str, list[str]]:
        """`host:port` of the members of each role, in the order of their ranks, as TensorFlow writes a cluster."""
        cluster: dict[str, list[str]] = {}
        for place in self.places:
            cluster.setdefault(place.role.value, []).append(f"{place.address}:{place.port}")
        return cluster

    def cluster_spec(self) -> dict[str, list[str]]:
        """`cluster` without evaluators, which only watch it."""
        return {role: addresses for role, addresses in self.cluster().items() if role != Role.EVALUATOR}

    def tf_config(self) -> str:
        """TF_CONFIG of this member, as JSON; without a cluster for a single member."""
        if self.size == 1:
            return "{}"
        task = {"type": self.role.value, "index": self.index}
        return json.dumps({"cluster": self.cluster_spec(), "task": task, "rpc_layer": "grpc"})

    @property
    def trainers(self) -> int:
        """Members that run the training function in order to train: all but parameter servers and evaluators."""
        return sum(place.role in (Role.CHIEF, Role.WORKER) for place in self.places)

    @property
    def has_ps(self) -> bool:
        """Whether the gang has parameter servers; with TensorFlow's, its other workers are servers too."""
        return any(place.role is Role.PS for place in self.places)

    @property
    def is_server(self) -> bool:
        """Whether this member serves TensorFlow's chief, and so never enters the training function."""
        return self.role is Role.PS or (self.role is Role.WORKER and self.has_ps)


ALONE = Formation(0, (MemberAddress("localhost", "127.0.0.1", 0, Role.CHIEF),))
"""The formation of a trial with one member."""
