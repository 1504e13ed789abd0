"""The step of a training that is open: committed at the boundary after it, or undone where the ring changes before.

After a loss, and where a process takes a place, each member undoes what its open step has changed, joins the next ring,
and agrees there with the others which state all continue from.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import CallSurvivor, MissedCallError
from sparktrain.training.collectives.ring_errors import is_ring_error
from sparktrain.training.collectives.ring_healing import RingHealing
from sparktrain.training.elastic.elastic_training import ElasticTraining
from sparktrain.training.elastic.state_source import RingAgreement, RingRefusalError
from sparktrain.training.elastic.step_boundary import StepBoundary


class Transaction(CallSurvivor):
    """The steps of one training in one member. It belongs to the thread that trains."""

    def __init__(self, training: ElasticTraining, healing: RingHealing, boundary: StepBoundary) -> None:
        self._training = training
        self._healing = healing
        self._boundary = boundary
        self._has_changed = False
        """Whether the ring has changed since the last step."""
        self._compares = False
        """Whether the members compare their next collective."""

    def survive(self) -> None:
        """The training continues after a loss from now on."""
        self._healing.training = self._training
        self._healing.ring.continuity.survivor = self

    def end(self) -> None:
        """A loss ends the training from now on. Raises OSError when the agent is gone."""
        self._healing.training = None
        self._healing.ring.continuity.survivor = None
        self._boundary.offer = None
        self._healing.declare(False)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Within the block a step is open: a collective that fails in it is not repeated alone."""
        self._healing.ring.continuity.survivor = None
        try:
            yield
        finally:
            self._healing.ring.continuity.survivor = self

    def settle(self) -> None:
        """A step has ended, and no member needs what others have sent before."""
        if self._has_changed:
            self._has_changed = False
            self._healing.settle()

    def change(self, *, in_step: bool) -> None:
        """Form the next ring with the process that all members have agreed to take; none has started its next step.

        Raises MovedAway on the member that leaves.
        """
        offer = self._boundary.offer
        if offer is None:
            return
        self._boundary.offer = None
        steps = self._training.standing(in_step=in_step).steps
        try:
            self._healing.change(offer, steps)
            # The host that the member leaves has a copy that is lost soon.
            self._boundary.hasten(steps)
            self._agree(in_step)
        except RingError as error:
            if not is_of_loss(error):
                raise
            self.heal(error, in_step=in_step)

    def heal(self, error: BaseException, *, in_step: bool = False) -> bool:
        """Join the next ring after `error`, which is raised where none forms. Returns as `ElasticTraining.take_over`.

        This member has there the state that it has now. Another loss meanwhile has it join the ring after that.
        """
        self._boundary.offer = None
        # At once: the gang restarts, and does not wait for a process that cannot help.
        if self._boundary.sending or not self._training.can_continue(in_step=in_step):
            raise error
        while True:
            self._healing.rejoin(error)
            try:
                return self._agree(in_step)
            except Exception as broken:
                if not is_of_loss(broken):
                    raise
                error = broken  # one more member is lost

    def arrive(self, arrival: RingAgreement, agreed: Sequence[int], step: int) -> None:
        """This new process has the state of the others, and continues after `step` with what they have `agreed` on."""
        self._boundary.continue_with(step, agreed)
        self._enter_ring(arrival.sender.steps)
        self._healing.ring.continuity.echoes = False

    def _enter_ring(self, step: int) -> None:
        self._has_changed = True
        self._compares = self._training.compares_calls
        self._boundary.enter_ring(step)

    def _agree(self, in_step: bool) -> bool:
        """Come to the state that all members of a new ring continue from."""
        self._training.undo(in_step=in_step)
        agreement = self._healing.agree(
            self._training.standing(in_step=in_step),
            lambda folder, ranks: self._training.send(folder, ranks, in_step=in_step),
        )
        self._enter_ring(agreement.sender.steps)
        return self._training.take_over(agreement, in_step=in_step)

    def meet(self, name: str) -> None:
        """Compare with the other members what comes next, where they have not done so in this ring.

        Raises RingError, and MissedCallError on all members where they do different things.
        """
        if not self._compares:
            return
        self._compares = False
        ring = self._healing.ring
        with self._healing.ring.continuity.healing():
            row = np.array([zlib.crc32(name.encode())], "int64")
            calls = ring.allgather_array(row, name="loop").tolist()
        if len(set(calls)) > 1:
            raise MissedCallError(
                f"after a loss, the next collective of rank {ring.rank} is {name!r}, and that of others is another "
                "one: what a loop does after memory.step() must also happen in a process that resumes there"
            )


def is_of_loss(error: BaseException) -> bool:
    """Whether a member may have been lost: the others can form another ring."""
    return is_ring_error(error) and not isinstance(error, MissedCallError | RingRefusalError)
