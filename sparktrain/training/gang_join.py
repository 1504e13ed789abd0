"""How a member joins its gang: it loads the backend, holds a port, gets the addresses of all, and connects."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparktrain.base.clock import Clock, SystemClock, pause
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import Role
from sparktrain.config.uses import STRATEGY, names, runs_everywhere
from sparktrain.errors import FormError, RingError, StrategyError
from sparktrain.protocol.pipe_messages import Assignment
from sparktrain.state.gangs.step_times import StepTimes
from sparktrain.state.topology import ALONE, Formation
from sparktrain.training import process_setup
from sparktrain.training.agent_pipe import AgentWire
from sparktrain.training.collectives import backend
from sparktrain.training.collectives.barrier import HeldPort
from sparktrain.training.collectives.call_watch import CallWatch
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.collectives.ring_errors import is_loss
from sparktrain.training.collectives.ring_exchange import RingExchange
from sparktrain.training.frameworks.imported import ALL
from sparktrain.training.host_limits import HostLimits
from sparktrain.training.source_homes import Homes
from sparktrain.training.user_lines import named_use

if TYPE_CHECKING:
    from sparktrain.state.gangs.memory_parts import PartTransfers
    from sparktrain.training.checkpoint.memory_saver import MemorySaver
    from sparktrain.training.collectives.ring_healing import RingHealing
    from sparktrain.training.collectives.step_notes import StepLog
    from sparktrain.training.elastic.step_boundary import StepBoundary

RING_TIMEOUT_S = 30.0
"""How long the ring waits for a member that does not answer."""
SLOW_S = 3600.0
"""How long the ring waits for a member that answers but is slow: `hang_timeout` decides whether it hangs, and its
agent whether it is dead."""
PORT_TIMEOUT_S = 5.0
"""How long a member that restarts alone waits for its port."""
PORT_POLL_S = 0.05
_ELSEWHERE = Homes()
ASK_S = 1.5
"""How long a member with a failed operation waits for the others to report which ones they have called."""


class JoinedGang:
    """The gang of this process, and its ring."""

    def __init__(
        self,
        formation: Formation,
        join: Callable[[], Ring],
        release_port: Callable[[], None],
        exchange: backend.Exchange | None = None,
        homes: Homes = _ELSEWHERE,
        heal: Callable[["JoinedGang", Ring], "RingHealing"] | None = None,
    ) -> None:
        """`heal` has this member's part in healing a ring that can; None where the gang cannot."""
        self._formation = formation
        self.release_port = release_port
        """Stop holding this member's port, so that another socket can bind it. A second call does nothing."""
        self.homes = homes
        """Names the user's files in errors."""
        self.readers: int | None = None
        """How many members have a share of the data; None: all."""
        self._join = join
        self._ring: Ring | None = None
        self._limits = HostLimits()
        self._step_path: Path | None = None
        self._step_log: StepLog | None = None
        self._end_checks: list[Callable[[], None]] = []
        self._exchange = exchange
        self._heal = heal
        self.healing: RingHealing | None = None
        """How this member survives the loss of another one; None where it does not, and without a ring."""
        self.memory: MemorySaver | None = None
        """Takes the snapshots of this member in memory; None where there is no shared memory."""
        self._watch: CallWatch | None = None
        self._on_mismatch: Callable[[str], None] | None = None
        self._strategy = ""
        """The strategy of the user's own that trains, with its line."""
        self.trains = ""
        """What trains by the ring, with its line."""

    @property
    def formation(self) -> Formation:
        """The members of the gang, or those that have met in the newest ring."""
        return self._formation if self.healing is None else self.healing.ring.formation

    @property
    def connected(self) -> bool:
        """Whether the ring connects the members already."""
        return self._ring is not None

    @property
    def ring(self) -> Ring:
        """The ring. Its first use connects it, on all members, and blocks until they do. Raises FormError."""
        if self._ring is None:
            self._ring = self._join()
            if self._heal is not None and self._ring.heals:
                self.healing = self._heal(self, self._ring)
            self._end_checks = [check for framework in ALL if (check := framework.watch(self._ring)) is not None]
            self.watch_calls()
            self._start_step_log()
        return self._ring

    def boundary(self, every: str | None, clock: Clock, should_stop: Callable[[], bool]) -> "StepBoundary":
        """The step boundary of one training; `every`: how often it takes memory checkpoints, None for never.

        Blocks at the first use of the ring. Raises SpecError for another `every`; FormError.
        """
        from sparktrain.training.elastic.boundary_schedule import snapshot_interval
        from sparktrain.training.elastic.step_boundary import StepBoundary

        interval_s = None if every is None else snapshot_interval(every)
        memory = None if every is None else self.memory
        return StepBoundary(self.ring, clock, should_stop, memory=memory, interval_s=interval_s, healing=self.healing)

    def step_times(self) -> StepTimes | None:
        """Where the newest steps of this member went, by its notes; None without any."""
        notes = None if self._ring is None else self._ring.notes
        times = None if notes is None else notes.times()
        return None if times is None else self._limits.added_to(times)

    def log_steps(self, path: Path) -> None:
        """Write the times of the newest steps to `path` while this member trains, once the ring is connected."""
        self._step_path = path
        self._start_step_log()

    def close_step_log(self) -> None:
        """This member makes no more steps."""
        if self._step_log is not None:
            self._step_log.close()

    def _start_step_log(self) -> None:
        notes = None if self._ring is None else self._ring.notes
        if notes is not None and self._step_path is not None:
            from sparktrain.training.collectives.step_notes import StepLog  # it needs NumPy

            self._step_log = StepLog(self._step_path, notes)
            notes.stepped = self._step_log.stepped

    def training_ring(self, use: str) -> Ring:
        """The ring for `use`, which trains by it. Raises StrategyError beside a strategy of the user's own."""
        if self.trains:  # a tape comes here in each step
            return self.ring
        call = named_use(use, self.homes)
        if self._strategy:
            raise StrategyError(
                f"{call} averages over the members, and {self._strategy} does already: leave {use} out, and use "
                "ctx.report and ctx.checkpoint; or leave the strategy out, and train on the ring"
            )
        self.trains = call
        return self.ring

    def trained_by(self, strategy: str) -> None:
        """Note that `strategy` trains, in place of the ring. Raises StrategyError when the ring trains already."""
        if self.trains:
            raise StrategyError(
                f"{strategy} came after {self.trains}, and both average over the members: leave out one of them"
            )
        self._strategy = strategy

    def on_mismatch(self, callback: Callable[[str], None]) -> None:
        """Call `callback`, in a thread, when members call different collectives."""
        self._on_mismatch = callback
        self.watch_calls()

    def mismatch(self) -> str | None:
        """The mismatch that made a collective fail, or None. Waits for reports of the others, at most 1.5 s."""
        with suppress(OSError):
            return self._watch.ask(ASK_S) if self._watch is not None else None
        return None

    def broke(self, error: BaseException) -> bool:
        """Whether the training function raised `error` because a member is gone or hangs."""
        return self.formation.size > 1 and is_loss(error)

    def read_rank(self) -> Formation:
        """The formation, for a function that reads which member of it this process is.

        A process that waits can take no other place from then on.
        """
        if self.healing is not None and self.healing.waits:
            self.healing.bound = True
        return self.formation

    @property
    def rank_now(self) -> Callable[[], int] | None:
        """For a process that waits for a place: the rank that it has at each moment. None for any other one."""
        waits = self.healing is not None and self.healing.waits
        return (lambda: self.formation.rank) if waits else None

    def standing(self, assignment: Assignment) -> tuple[int, int]:
        """The rank of this member, which has `assignment`, among those that the gang has now, and their number."""
        if self.healing is not None and self.healing.has_moved:
            return self.formation.rank, self.formation.size
        return int(assignment.member.rank), assignment.call.gang.size

    def turns(self) -> tuple[int, int]:
        """The number of this member among those of its host, and how many they are."""
        return self.formation.local_rank, self.formation.local_size

    def arrival(self, assignment: Assignment) -> Callable[[], str] | None:
        """For a process that joins members that train, or gets parts of a snapshot from others: returns the folder with
        the state, once they have sent it.

        One that is prepared waits for its place in the ring before. None for any other process.
        """
        healing = self.healing
        if healing is None or not (healing.waits or healing.awaits_state):
            plan = assignment.memory_transfers
            # Not before: the function makes the process group by which they travel.
            return partial(self._receive_parts, assignment, plan) if plan is not None and plan.is_split else None
        receive = healing.take_place if healing.waits else healing.arrive

        def arrive() -> str:
            folder = receive(_sent_folder(assignment))
            self.watch_calls()
            return str(folder)

        return arrive

    def _receive_parts(self, assignment: Assignment, plan: "PartTransfers") -> str:
        from sparktrain.training.checkpoint.sent_files import receive_parts

        held = Path(assignment.restore_dir) if assignment.restore_dir else None
        return str(receive_parts(self.ring, plan, held, _sent_folder(assignment)))

    def leave(self) -> None:
        """Leave the ring, if there is one, after training to the end. Blocks until all members leave."""
        if self._ring is None:
            return
        healing = self.healing
        if healing is not None and (healing.arrival is not None or healing.awaits_state or healing.waits):
            raise RingError(
                "the function has ended without the fit(), or the loop, in which the others wait for this process"
            )
        for check in self._end_checks:
            check()
        self._ring.close()

    def watch_calls(self) -> None:
        """Compare the collectives of the members from now on, once there are any, and there is a callback for it."""
        healing = self.healing
        if healing is not None and (healing.waits or healing.awaits_state):
            return  # the others would take its calls for theirs, which they count from its arrival on
        calls = None if self._ring is None else self._ring.calls
        if calls is None or self._exchange is None or self._on_mismatch is None or self._watch is not None:
            return
        self._watch = CallWatch(calls.newest, self._exchange, self.formation.rank, SystemClock())
        self._watch.start(self._on_mismatch)
        if healing is not None:
            healing.watch = self._watch


def alone(homes: Homes = _ELSEWHERE) -> JoinedGang:
    """The gang of an ordinary trial."""
    return JoinedGang(ALONE, LocalRing, lambda: None, homes=homes)


def form(
    assignment: Assignment, wire: AgentWire, function: Callable[..., object], homes: Homes = _ELSEWHERE
) -> JoinedGang:
    """Join the gang of `assignment`, which calls `function`. Blocks until all its members have joined.

    It connects the ring here, because that is possible only before TensorFlow has run an operation. A function that
    calls `ctx.strategy()`, or starts a server, connects the members by that instead; a strategy that it makes by itself
    uses the server of the ring.
    Raises ImportError without the backend's framework, and FormError.
    """
    call = assignment.call
    if call.gang.size == 1:
        return alone(homes)
    join = backend.load(call.gang.backend)
    # Hold the port before others learn it: between the report and TensorFlow's bind another process could take it.
    held = _hold(assignment.address, call.gang.port)
    places = wire.reserve(held.number)
    if places is None:
        raise FormError("the agent is gone, and with it the connection to the other members")
    formation = Formation(assignment.member.rank, places)
    # Before the ring, which initialises TensorFlow and with it the devices:
    process_setup.choose_devices(assignment, formation)
    # While this process started, another loss may have ended the ring that it was to join.
    exchange = RingExchange(wire, wire.ring if assignment.ring else 0, SystemClock())
    changes = backend.RingChanges(
        prepared=call.gang.prepared,
        number=assignment.ring,
        resizes=call.gang.may_shrink,
    )
    joining = backend.Joining(
        formation=formation,
        exchange=exchange,
        release_port=held.release,
        timeout_s=RING_TIMEOUT_S,
        slow_s=SLOW_S,
        servers=call.gang.servers,
        incarnation=assignment.member.incarnation,
        generation=assignment.member.generation,
        changes=changes,
        take_port=held.take,
    )

    def connect() -> Ring:
        ring = join(joining)
        ring.local_steps = call.gang.local_steps
        return ring

    def heal(gang: JoinedGang, ring: Ring) -> "RingHealing":
        from sparktrain.training.collectives.ring_healing import RingHealing

        parents = [*([Path(assignment.memory_dir)] if assignment.memory_dir else []), Path(assignment.log_path).parent]
        folders = [parent / "healing" for parent in parents]
        healing = RingHealing(ring, exchange, wire, SystemClock(), folders)
        if call.gang.prepared:
            healing.prepare()
        return healing

    gang = JoinedGang(formation, connect, held.release, exchange, homes, heal if call.options.healing else None)
    if call.gang.backend is Backend.PARAMETER_SERVER:
        gang.readers = formation.trainers
    if call.gang.backend is Backend.TENSORFLOW:
        os.environ["TF_CONFIG"] = formation.tf_config()
        if _connects_itself(formation, function):
            return gang
    _ = gang.ring
    return gang


def with_sent_files(assignment: Assignment, gang: JoinedGang) -> Assignment:
    """The assignment with a folder to resume from, where a member sends its snapshot. Blocks until all have it.

    In a ring that heals, this process meets the others alone: it gets their present state when it restores it, and
    runs the training function meanwhile. Raises FormError.
    """
    plan = assignment.memory_transfers
    if not assignment.ring and (plan is None or plan.is_split):
        return assignment
    from sparktrain.training.checkpoint.sent_files import send_files

    source = Path(assignment.restore_dir) if assignment.restore_dir else None
    target = _sent_folder(assignment)
    ring = gang.ring
    try:
        if assignment.ring:
            assert gang.healing is not None
            gang.healing.meet()
            return assignment
        assert plan is not None
        [send] = plan.sends
        ring.source = send.rank
        sent_folder = send_files(ring, source, target)
        ring.source = 0
        if gang.healing is not None:
            gang.healing.forget_calls()
    except (RingError, OSError) as error:
        raise FormError(f"the state in the memory of a member did not reach all others: {error}") from error
    return replace(assignment, restore_dir=str(sent_folder))


def _sent_folder(assignment: Assignment) -> Path:
    return Path(assignment.log_path).with_name("sent")


def _connects_itself(formation: Formation, function: Callable[..., object]) -> bool:
    """Whether the training function connects the members in place of a ring."""
    if formation.has_ps or any(place.role is Role.EVALUATOR for place in formation.places):
        return True
    return names(function, STRATEGY) or runs_everywhere(function)


def _hold(address: str, port: int) -> HeldPort:
    """Hold `port`, or any one for 0. Waits while another process has it: the member of a lost agent may still live."""
    clock = SystemClock()
    deadline = clock.now() + PORT_TIMEOUT_S
    while port:
        try:
            return HeldPort(address, port)
        except OSError as error:
            if clock.now() >= deadline:
                raise FormError(
                    f"port {port} of {address}, by which the other members know this one, cannot be bound again within "
                    f"{PORT_TIMEOUT_S:g} s: {error}; another process has taken it"
                ) from error
        pause(PORT_POLL_S)
    try:
        return HeldPort(address)
    except OSError as error:
        raise FormError(f"no port of {address} can be bound: {error}; is it an address of this host?") from error
