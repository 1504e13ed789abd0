"""The ring of a gang without one: its members meet at their parameter servers, and none waits for all others."""

from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import PsModel


class PsRing(LocalRing):
    """For each member it is a ring of one: what members agree on in other gangs, each decides for itself."""

    def __init__(self, rank: int, ps_model: PsModel) -> None:
        self.rank = rank
        self.ps_model = ps_model

    def close(self) -> None:
        """See base class."""
        if self.ps_model is not None:
            self.ps_model.close()
