"""Several calls on one pool in virtual time, through the state machine that decides in real runs.

Shows what each call gets of the slots: by weight, while all want more than there is, and at once, where one is urgent.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from sparktrain.base.ids import CHIEF, AgentId, Member, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.restart_history import RestartHistory

TICK_S = 0.1
MINUTE_S = 60.0
_FOREVER = float("inf")


@dataclass(frozen=True, kw_only=True)
class SimulatedCall:
    """One call on the pool."""

    name: str
    weight: float = 1.0
    priority: int = 0
    size: int = 1
    """Members of each trial's gang."""
    start_s: float = 0.0
    trials: int | None = None
    """Number of trials; None for more than there is time for."""
    steps: tuple[int, int] = (1, 4)
    """Fewest and most steps of a trial; it reports and saves after each one."""


class _Call:
    """A call that has started."""

    def __init__(self, call: SimulatedCall) -> None:
        self.spec = call
        self.trials_left = call.trials
        self.used: list[float] = []
        """Slot-seconds of each minute."""
        self.first_placed_at: float | None = None
        self.steps_done: dict[TrialId, int] = {}
        self.steps_made: dict[TrialId, int] = {}
        """Steps of a trial, those that were repeated counted twice."""
        self.lengths: dict[TrialId, int] = {}


class CallUse(NamedTuple):
    """What one call had of the pool."""

    call: SimulatedCall
    minutes: tuple[float, ...]
    """Slot-seconds in each minute."""
    waited_s: float | None
    """From its start to the start of its first trial; None where none has started."""
    repeated_steps: int
    """Steps that trials made more than once."""
    restarts: tuple[RestartHistory, ...]
    """Of its trials."""


@dataclass
class _Process:
    """A member on its agent."""

    member: Member
    since: float


class _Entry(NamedTuple):
    """A process is about to enter the training function, or the gang."""

    agent: AgentId
    member: Member
    size: int


class _Step(NamedTuple):
    """A chief is about to end a step."""

    agent: AgentId
    member: Member


@dataclass
class VirtualPool:
    """Calls on a pool of `slots`, with trials that take `step_s` for each step."""

    calls: Sequence[SimulatedCall]
    slots: int
    step_s: float = 0.5
    load_s: float = 0.02
    """How long an agent takes to load the code of a call that it has not had."""
    seed: int = 0
    machine: Machine = field(default_factory=lambda: Machine(_FOREVER))

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._heap: list[tuple[float, int, object]] = []
        self._order = count()
        self._running: dict[RunId, _Call] = {}
        self._processes: dict[AgentId, _Process] = {}
        self._at = 0.0

    def run(self, until_s: float) -> tuple[CallUse, ...]:
        """Let `until_s` seconds pass; what each call had, in the order of `calls`."""
        for number in range(self.slots):
            agent = AgentId(f"slot-{number}")
            self._feed(on.AgentJoined(0.0, agent, number, f"host-{number // 8}"))
            self._feed(on.AgentSent(0.0, agent, m.Ready()))
        for call in self.calls:
            self._push(call.start_s, call)
        self._push(TICK_S, None)
        while self._heap and self._heap[0][0] <= until_s:
            self._at, _, happening = heapq.heappop(self._heap)
            self._happens(happening)
        self._at = until_s
        for process in self._processes.values():
            self._charge(process)
        return tuple(self._use(call) for call in self.calls)

    def _use(self, spec: SimulatedCall) -> CallUse:
        call = self._running[RunId(spec.name)]
        placed_at = call.first_placed_at
        waited_s = None if placed_at is None else placed_at - spec.start_s
        sweep = self.machine.sweep_of(RunId(spec.name))
        histories = () if sweep is None else tuple(trial.restart_history for trial in sweep.trials.values())
        repeated = sum(call.steps_made[trial] - call.steps_done[trial] for trial in call.steps_made)
        return CallUse(spec, tuple(call.used), waited_s, repeated, histories)

    def _push(self, at: float, happening: object) -> None:
        heapq.heappush(self._heap, (at, next(self._order), happening))

    def _happens(self, happening: object) -> None:
        match happening:
            case None:
                self._feed(on.Ticked(self._at))
                self._push(self._at + TICK_S, None)
            case SimulatedCall() as call:
                self._start(call)
            case do.PrepareAgent(agent=agent, run=run):
                self._send(agent, m.Ready(run))
            case on.Suggested():
                self._feed(happening)
            case _Entry(agent=agent, member=member, size=size) if self._is_on(agent, member):
                held = m.MemberStands(member, m.Standing(port=1))
                self._send(agent, held if size > 1 else m.MemberStarted(member, 0))
            case _Step(agent=agent, member=member) if self._is_on(agent, member):
                self._step(agent, member)

    def _is_on(self, agent: AgentId, member: Member) -> bool:
        process = self._processes.get(agent)
        return process is not None and process.member == member

    def _start(self, call: SimulatedCall) -> None:
        run = RunId(call.name)
        self._running[run] = _Call(call)
        roles = (Role.CHIEF, *[Role.WORKER] * (call.size - 1))
        limits = on.RunLimits(
            spec=SweepSpec(name=call.name, max_failures=None),
            roles=roles,
            lookahead=1,
            total=call.trials,
            recovers=True,
            allotment=on.Allotment(agents=self.slots, weight=call.weight, priority=call.priority),
        )
        self._feed(on.RunStarted(self._at, run, limits))

    def _step(self, agent: AgentId, member: Member) -> None:
        """A chief has made a step: it reports and saves, and ends where that was the last one."""
        call = self._running[member.run]
        call.steps_made[member.trial] = call.steps_made.get(member.trial, 0) + 1
        step = call.steps_done[member.trial] = call.steps_done.get(member.trial, 0) + 1
        length = call.lengths.setdefault(member.trial, self._random.randint(*call.spec.steps))
        if step >= length:
            self._end(member, None)
            return
        self._send(agent, m.MemberStepped(member, step, 1.0 / self.step_s))
        manifest = f"{member.run}-{member.trial}-{step}"
        self._send(agent, m.CheckpointStored(member, Checkpoint(member.generation, step, manifest, manifest)))
        if self._is_on(agent, member):
            self._push(self._at + self.step_s, _Step(agent, member))

    def _end(self, member: Member, failure: Failure | None) -> None:
        """All members of the gang end."""
        ended = [
            (agent, process)
            for agent, process in self._processes.items()
            if (process.member.run, process.member.trial) == (member.run, member.trial)
        ]
        for agent, process in ended:
            self._charge(process)
            del self._processes[agent]
        for agent, process in ended:
            metrics = {"loss": 0.0} if failure is None else None
            self._send(agent, m.MemberEnded(process.member, Outcome(1.0, metrics=metrics, failure=failure)))

    def _charge(self, process: _Process) -> None:
        """Count the time of a process, minute by minute."""
        used = self._running[process.member.run].used
        start = process.since
        while start < self._at:
            minute = int(start // MINUTE_S)
            end = min(self._at, (minute + 1) * MINUTE_S)
            used.extend([0.0] * (minute + 1 - len(used)))
            used[minute] += end - start
            start = end

    def _send(self, agent: AgentId, message: m.StateInput) -> None:
        self._feed(on.AgentSent(self._at, agent, message))

    def _feed(self, event: on.Event) -> None:
        """Fold the event, and do what the machine commands."""
        for command in self.machine.handle(event):
            match command:
                case do.PrepareAgent():
                    self._push(self._at + self.load_s, command)
                case do.PlaceMember(agent=agent, member=member, size=size):
                    self._place(agent, member, size)
                case do.Suggest(run=run, count=number):
                    self._suggest(run, number)
                case do.Send(agent=agent, message=m.Seating(member=member)):
                    self._send(agent, m.MemberStarted(member, 0))
                case do.Send(message=m.StopMember(member=member)) if member.rank == CHIEF:
                    self._end(member, Failure(FailureKind.STOPPED, "stopped"))

    def _place(self, agent: AgentId, member: Member, size: int) -> None:
        call = self._running[member.run]
        call.first_placed_at = self._at if call.first_placed_at is None else call.first_placed_at
        self._processes[agent] = _Process(member, self._at)
        # After the commands of this event: a real agent answers later, too.
        self._push(self._at, _Entry(agent, member, size))
        if member.rank == CHIEF:
            self._push(self._at + self.step_s, _Step(agent, member))

    def _suggest(self, run: RunId, number: int) -> None:
        call = self._running[run]
        cases = number if call.trials_left is None else min(number, call.trials_left)
        if call.trials_left is not None:
            call.trials_left -= cases
        self._push(self._at, on.Suggested(self._at, run, tuple({} for _ in range(cases)), call.trials_left == 0))
