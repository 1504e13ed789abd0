"""The ring of a gang without one: its members meet at their parameter servers, and none waits for all others."""

from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.parameter_server.served_model import ServedModel


class ServedRing(LocalRing):
    """For each member it is a ring of one: what members agree on in other gangs, each decides for itself."""

    def __init__(self, rank: int, served: ServedModel) -> None:
        self.rank = rank
        self.served = served

    def close(self) -> None:
        """See base class."""
        if self.served is not None:
            self.served.close()
