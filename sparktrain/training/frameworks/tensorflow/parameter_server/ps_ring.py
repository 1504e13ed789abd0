"""The ring of a gang without one: its members meet at their parameter servers, and none waits for all others."""

from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.frameworks.tensorflow.parameter_server.ps_model import LivePlaces, PsModel


class PsRing(LocalRing):
    """For each member it is a ring of one: what members agree on in other gangs, each decides for itself."""

    def __init__(self, rank: int, ps_model: PsModel) -> None:
        self.rank = rank
        self.ps_model = ps_model

    def close(self) -> None:
        """See base class."""
        if self.ps_model is not None:
            self.ps_model.close()


def join(joining: Joining) -> PsRing:
    """The ring of a member that meets the others at their parameter servers alone."""
    formation = joining.formation
    places = LivePlaces(formation, joining.exchange.moved)
    ps_model = PsModel(places, joining.servers, joining.incarnation, slow_s=joining.operation_s)
    return PsRing(formation.rank, ps_model)
