"""How the members of a gang survive the loss of another one: they leave their ring, and meet in the next one.

The agent of each survivor announces the loss, and the number of the next ring. A thread of the member then ends the
connections, so that the collective in which the member waits fails. The member waits for the places of all, joins the
next ring with the process that takes the lost rank, and agrees with the others which member sends its state.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import astuple, fields

from sparktrain.base.clock import Clock, pause
from sparktrain.base.decoding import converted, from_msgpack
from sparktrain.errors import CheckpointError, FormError, RingError
from sparktrain.state.agent_messages import Seating
from sparktrain.state.topology import Formation
from sparktrain.store.folder_removal import remove
from sparktrain.training.agent_pipe import AgentWire
from sparktrain.training.checkpoint.memory_saver import PackedArray
from sparktrain.training.checkpoint.sent_files import broadcast_bytes, send_files
from sparktrain.training.collectives.call_watch import CallWatch
from sparktrain.training.collectives.continuity import Result
from sparktrain.training.collectives.ring_errors import MovedAway
from sparktrain.training.collectives.ring_exchange import RingExchange
from sparktrain.training.collectives.silence_watch import SilenceWatch
from sparktrain.training.elastic.elastic_training import ElasticTraining
from sparktrain.training.elastic.state_source import (
    RingAgreement,
    RingRefusalError,
    RingStanding,
    SourceDirection,
    needs_state,
    source_of,
)

if TYPE_CHECKING:
    from sparktrain.training.frameworks.tensorflow.collectives.horovod_ring import HorovodRing
    from sparktrain.training.frameworks.torch.torch_ring import TorchRing

SILENT_S = 3.0
"""How long the host of another member may acknowledge nothing while this member can heal."""
UNANSWERED_S = 1.25
"""After so long its agents are asked for a heartbeat: longer than the second from one probe of a connection to the
next."""
REPORTED_S = 0.2
"""How long an agent may take to report the loss of its member, before others report its host."""
ANNOUNCED_S = 30.0
"""How long a member with a failed collective waits for the announcement that the ring heals. A coordinator that was
lost with another member has a successor first, after about 10 s, or 25 s where its host is silent."""
NEXT_RING_S = 300.0
"""How long a member waits for the places in the next ring: the coordinator, which knows what the new process does, ends
the gang before."""
_POLL_S = 0.005
_NAME = "healing"


_FIELDS = [field.name for field in fields(RingStanding)]


class RingHealing:
    """One member's part when its ring heals. Its methods belong to the thread that trains."""

    def __init__(
        self,
        ring: Any,
        exchange: RingExchange,
        wire: AgentWire,
        clock: Clock,
        folders: Sequence[Path],
    ) -> None:
        """`folders`: of this member, in memory and on the disk."""
        self.ring: HorovodRing | TorchRing = ring
        self.arrival: RingAgreement | None = None
        """How this process joined a ring of members that train; None once it has trained a step, and for the others."""
        self.training: ElasticTraining | None = None
        """What can change its ring for a process that waits for a place."""
        self.watch: CallWatch | None = None
        """What compares the collectives of the members."""
        self.has_moved = False
        """Whether the members have met in another ring than the first, perhaps without some of them."""
        self._rank: int = ring.rank
        """Of this member in its gang. In a ring that lacks members of the gang it has another one."""
        self._ranks: tuple[int, ...] = tuple(range(ring.size))
        """The ranks in the gang of the members of the ring."""
        self._exchange = exchange
        self._wire = wire
        self._clock = clock
        self._folders = folders
        self._declared = False
        self._listening = False
        self._silence = SilenceWatch(
            lambda: self.ring.peers.unanswered_ranks(self.ring.formation, UNANSWERED_S), self._doubt
        )
        self.waits = False
        """Whether this process is prepared, and has no place in the ring yet."""
        self._met: tuple[RingStanding, ...] = ()
        """How far the others had come when this process joined their ring, until it has their state."""
        self.bound = False
        """Whether the function has read the rank of this process while it waits."""
        self.forget_calls()

    @property
    def called(self) -> int | None:
        """The steps after which the process before this one had called its callbacks; None where that is unknown."""
        return self._wire.called

    def forget_calls(self) -> None:
        """Count only collectives from now on: those before belong to no training function."""
        self.ring.continuity.started = 0
        self.ring.continuity.repeats = True
        self.ring.continuity.checks_echoes = True

    def declare(self, heals: bool, *, moves: bool = False, shrinks: bool = False) -> None:
        """Report whether this member can continue after a loss now, whether it looks at each `offer`, and whether it
        can continue with fewer members.

        Raises OSError when the agent is gone.
        """
        if heals == self._declared:
            return
        self._declared = heals
        (self._silence.start if heals else self._silence.stop)()
        self.ring.peers.expect_answers(SILENT_S if heals else 0.0)
        if heals and not self._listening:
            self._listening = True
            self._wire.on_ring_broken(self._break_off)
        self._wire.stand(heals=heals, moves=moves, shrinks=shrinks)

    def healed(self, step: int) -> None:
        """Report that this member is about to train on after `step`, and wait until all members have reported that.

        Returns at once where another member is lost: the next collective fails, and the ring forms again. Raises
        RingError after `NEXT_RING_S`; OSError when the agent is gone.
        """
        ring = self._exchange.number
        self._wire.stand(ring=ring, step=step)
        if not self._wire.await_joined(ring, NEXT_RING_S):
            raise RingError(
                f"the coordinator did not confirm within {NEXT_RING_S:g} s that all members joined ring {ring}"
            )

    def rejoin(self, error: BaseException) -> None:
        """Leave the broken ring, and join the newest one. Raises `error` if none is announced; FormError.

        Blocks until all members have joined, and until their ring has outlived that.
        """
        if not self._declared or not self._announced():
            raise error
        if self.watch is not None:
            # Its thread receives from the same exchange, and would take what the others share to connect.
            self.watch.pause()
        self.ring.break_off()
        joined = False
        while not joined:
            formed = self._wire.next_ring(NEXT_RING_S)
            if formed is None:
                raise error
            # The newest ring: while this member waited, another loss may have ended the one that was announced.
            try:
                self._form(formed)
            except FormError:
                if not self._announced():
                    raise
            else:
                # A loss while it connected has ended no connection.
                joined = self._wire.ring == formed.ring

    # ---- a process that is prepared takes a place

    def prepare(self) -> None:
        """This process is to run the function up to its ring: until it has a place there, collectives are echoes."""
        self.waits = True
        self.ring.continuity.echoes = True
        self.ring.start_waiting(self._bind)

    def take_place(self, target: Path) -> Path:
        """Wait for a place in the ring of the others, and join it; returns the folder with their state, as `arrive`.

        Blocks until they have a place for this process. Raises FormError, RingError.
        """
        self.ring.prepare()
        formed = self._wire.await_place(bound=self.bound)
        if formed is None:
            raise FormError("the agent is gone, and with it the connection to the other members")
        self._rank = formed.member.rank
        if self.training is not None:
            self.training.make_room()
        self._form(formed)
        self.meet()
        return self.arrive(target)

    def _bind(self) -> None:
        self.bound = True

    def grows(self, offer: Seating) -> bool:
        """Whether the process that is offered takes a place that is vacant in the present ring."""
        return offer.moving not in self._ranks

    def offer(self) -> Seating | None:
        """The process that waits for a place, if this member can change its ring for it."""
        offer = self._wire.offer
        if offer is None or offer.ring <= self._exchange.number:
            return None
        if self.training is None or not self.training.accepts(offer):
            self.declare(False)  # the coordinator withdraws the offer
            return None
        return offer

    def change(self, offer: Seating, step: int) -> None:
        """Leave the ring after `step`, as all members do, and join the next one with the process that is offered.

        Blocks until all members of it have joined. Raises FormError; and MovedAway on the member that leaves.
        """
        if self.watch is not None:
            self.watch.pause()
        if offer.moving == self._rank:
            self._wire.stand(leaves=offer.ring, step=step)
            self.ring.leave()
            raise MovedAway(offer.places[self._rank].host)
        if self._rank == 0 and self.grows(offer):
            self._wire.stand(leaves=offer.ring, step=step)
        self._form(offer)

    def _form(self, formed: Seating) -> None:
        self._ranks = tuple(map(int, formed.ranks)) or tuple(range(len(formed.places)))
        formation = Formation(self._ranks.index(self._rank), formed.places)
        self._exchange.enter(formed.ring)
        self.ring.rejoin(formation, formed.ring)
        if self._declared:
            self.ring.peers.expect_answers(SILENT_S)
        self.has_moved = True

    # ---- agreement

    def agree(
        self, standing: RingStanding, write: Callable[[Path, list[int]], None], target: Path | None = None
    ) -> RingAgreement:
        """Agree with all members of the new ring, and get the state that they continue from where this member needs it.

        `write(folder, ranks)` writes the state of this member for the new processes of `ranks`; it is called on the
        member that sends. Files from another host come into the new folder `target`. Blocks until all members call it.
        Raises RingError where another member is lost meanwhile, and RingRefusalError where they cannot continue, as
        with a full disk.
        """
        with self.ring.continuity.healing():
            standings = self._met or self._standings(standing)
            self._met = ()
            source = source_of(standings)
            self.ring.source = source
            try:
                folder = self._files(standings, write, target)
                results = self._results()
            # A full disk here is no mistake of the function: all restart, as after any loss. Nor are values of a type
            # that NumPy lacks.
            except (OSError, CheckpointError, TypeError) as error:
                raise RingRefusalError(f"the state for another process cannot be written: {error}") from error
            finally:
                self.ring.source = 0
        if self.ring.calls is not None:
            self.ring.calls.restart()
        if self.watch is not None:
            self.watch.restart()
        agreement = RingAgreement(standings=standings, source=source, folder=folder, results=results)
        self._follow(standing, agreement)
        return agreement

    def meet(self) -> None:
        """Learn how far the others have come: this new process has joined their ring, and one of them writes its state.

        Until the first step of this process collectives are echoes. Blocks until all members meet. Raises RingError.
        """
        with self.ring.continuity.healing():
            self._met = self._standings(RingStanding(is_new=True))
        source_of(self._met)
        self.ring.continuity.echoes = True
        self.ring.joins_late = True

    @property
    def awaits_state(self) -> bool:
        """Whether this process has joined the ring of members that train, and `arrive` has not been called yet."""
        return bool(self._met)

    def arrive(self, target: Path) -> Path:
        """The folder with the state of the members that train, for a process that has met them.

        Files from another host come into the new folder `target`. Blocks. Raises RingError.
        """

        def write(folder: Path, ranks: list[int]) -> None:
            raise RingRefusalError("no member of the ring has a state: all of them are new")

        self.arrival = self.agree(RingStanding(is_new=True), write, target)
        self.waits = False
        return self.arrival.folder

    def settle(self) -> None:
        """A step has ended since the agreement, and no member needs its files any more."""
        self.arrival = None
        for base in self._folders:
            for folder in base.parent.glob(f"{base.name}-*"):
                remove(folder)

    def _announced(self) -> bool:
        if self._announced_within(REPORTED_S):
            return True
        # A host without power, or behind a cut cable: its agent is silent too, and would count as alive for long.
        if silent := self.ring.peers.silent_ranks(self.ring.formation):
            self._doubt(silent)
        return self._announced_within(ANNOUNCED_S - REPORTED_S)

    def _doubt(self, silent: Sequence[int]) -> None:
        self._wire.doubts([self._ranks[rank] for rank in silent if rank < len(self._ranks)])

    def _announced_within(self, seconds: float) -> bool:
        until = self._clock.now() + seconds
        while self._wire.ring <= self._exchange.number:
            if self._clock.now() >= until or self._wire.ended:
                return False
            pause(_POLL_S)
        return True

    def _break_off(self, number: int) -> None:
        if number > self._exchange.number:
            self._exchange.leave(number)
            self.ring.break_off()

    def _standings(self, mine: RingStanding) -> tuple[RingStanding, ...]:
        row = np.array([[*map(int, astuple(mine))]], "int64")
        rows = self.ring.allgather_array(row, name=_NAME).tolist()
        return tuple(converted(dict(zip(_FIELDS, row, strict=True)), RingStanding, strict=False) for row in rows)

    def _files(
        self, standings: Sequence[RingStanding], write: Callable[[Path, list[int]], None], target: Path | None
    ) -> Path:
        folder = self._numbered(self._folders[-1])
        mine = standings[self.ring.rank]
        source = standings[self.ring.source]
        if not any(needs_state(standing, source) for standing in standings):
            return folder
        if self.ring.rank == self.ring.source:
            ranks = [rank for rank, standing in enumerate(standings) if standing.is_new]
            folder = self._written(lambda folder: write(folder, ranks))
            return send_files(self.ring, folder, folder, is_new=True)
        received = folder.with_name(f"{folder.name}-received") if target is None else target
        return send_files(self.ring, None if needs_state(mine, source) else folder, received, is_new=True)

    def _written(self, write: Callable[[Path], None]) -> Path:
        """The folder with the state of this member: on the disk where shared memory is full."""
        *in_memory, last = map(self._numbered, self._folders)
        for folder in in_memory:
            try:
                write(folder)
            except CheckpointError:
                remove(folder)
            else:
                return folder
        write(last)
        return last

    def _numbered(self, folder: Path) -> Path:
        """The folder for the files of the present ring."""
        return folder.with_name(f"{folder.name}-{self._exchange.number}")

    def _results(self) -> tuple[Result, ...]:
        """The results that the member which sends its state has recorded."""
        recorded = [
            [PackedArray.of(np.asarray(tensor)) for tensor in result] for result in self.ring.continuity.results
        ]
        content = broadcast_bytes(self.ring, msgspec.msgpack.encode(recorded))
        received = from_msgpack(content, list[list[PackedArray]])
        return tuple([self.ring.tensor(packed.array()) for packed in result] for result in received)

    def _follow(self, mine: RingStanding, agreement: RingAgreement) -> None:
        sender = agreement.sender
        if sender.direction is SourceDirection.LEAST_ADVANCED:
            done = sender.results if mine.place != sender.place else mine.results
            done = sender.past_results if mine.is_new else done
        elif mine.is_new:
            done = len(agreement.results) if sender.in_step else 0
        else:
            done = mine.results if mine.steps == sender.steps else 0
        if mine.is_new:
            # It counts as having these: in the next ring it once took them again, for its later collectives.
            self.ring.continuity.results = list(agreement.results[:done])
        self.ring.continuity.follow(agreement.results[done:])
