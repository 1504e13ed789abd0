"""The contract of what travels beside the gradients of a step, whatever averages them."""

from abc import ABC, abstractmethod

from sparktrain.training.collectives.ring import Tensor


class Passenger(ABC):
    """What travels with the dense gradients of each step, as their sum over all members."""

    @abstractmethod
    def sent(self) -> Tensor:
        """This member's part; of a step that is traced, while it is."""

    @abstractmethod
    def receive(self, total: Tensor) -> None:
        """The sum over all members. Called once all collectives of the step have ended; of a step that is traced, while
        it is."""
