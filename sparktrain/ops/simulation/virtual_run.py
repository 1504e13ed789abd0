"""Replays learning curves through the state machine that decides in real runs, in virtual time.

Each slot is one agent, with a clock that jumps from event to event: what a real coordinator would decide for the same
events in the same order is decided here, so 10,000 trials take seconds.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from sparktrain.base.ids import AgentId, Member, RunId, TrialId
from sparktrain.config.metric_names import Mode
from sparktrain.config.stoppers import ASHA, AnyStopRule
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.errors import BugError
from sparktrain.ops.simulation.curves import LearningCurve
from sparktrain.ops.simulation.recorded_search import AsRecorded, Order
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Outcome, Report
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import TrialStatus

_RUN = RunId("simulated")
_FOREVER = math.inf


class SimulatedTrial(NamedTuple):
    """One trial of a simulation."""

    status: TrialStatus
    started: float
    ended: float
    value: float
    """The last value that it reported."""
    busy_s: float
    """Seconds that it held a slot."""
    recorded: int
    """The number of the recorded trial that it repeats."""


@dataclass(frozen=True)
class SimulatedRun:
    """What a sweep would have cost."""

    slots: int
    stopper: tuple[AnyStopRule, ...]
    trials: tuple[SimulatedTrial, ...]
    best: int | None
    """The number of the best trial that ran to its end, in the order of the simulation; None without one."""

    @property
    def seconds(self) -> float:
        """From the start to the end of the last trial."""
        return max((trial.ended for trial in self.trials), default=0.0)

    @property
    def busy_s(self) -> float:
        """Seconds of slots that trained."""
        return sum(trial.busy_s for trial in self.trials)

    @property
    def found_s(self) -> float | None:
        """When the best trial ended; None without one."""
        return None if self.best is None else self.trials[self.best].ended

    @property
    def pruned(self) -> int:
        """Trials that a rule stopped."""
        return sum(trial.status is TrialStatus.PRUNED for trial in self.trials)


class VirtualRun:
    """One replay. A trial looks at `ctx.should_stop()` after each report, and returns `stop_s` later."""

    def __init__(
        self,
        curves: Sequence[LearningCurve],
        slots: int,
        metric: str,
        mode: Mode,
        stopper: tuple[AnyStopRule, ...],
        *,
        start_s: float = 0.0,
        stop_s: float = 0.0,
        order: Order | None = None,
        trials: int | None = None,
    ) -> None:
        """`start_s` passes between a free slot and the first line of its next trial.

        `trials` is how many of them run, all by default; `order` chooses them, by default the first.
        """
        total = len(curves) if trials is None else min(trials, len(curves))
        self._curves = curves
        self._slots = slots
        self._metric = metric
        self._sign = -1.0 if mode == "max" else 1.0
        self._stopper = stopper
        self._start_s = start_s
        self._stop_s = stop_s
        self._machine = Machine(_FOREVER)
        spec = SweepSpec(name=_RUN, metric=metric, mode=mode, stopper=stopper, max_failures=None)
        self._limits = on.RunLimits(spec=spec, lookahead=1, total=total, allotment=on.Allotment(agents=slots))
        self._search = order or AsRecorded(total)
        self._proposed: list[int] = []
        """The recorded trial of each one."""
        self._heap: list[tuple[float, int, AgentId, Member, int]] = []
        """What happens next: when, in which order, where, in which trial, and the number of the report."""
        self._order = count()
        self._advised: set[Member] = set()
        self._saves = any(isinstance(rule, ASHA) and rule.promote for rule in stopper)
        self._started: dict[TrialId, float] = {}
        self._started_at: dict[TrialId, float] = {}
        """When the newest gang of a trial started."""
        self._first: dict[TrialId, int] = {}
        """The number of its first report."""
        self._ended: dict[TrialId, float] = {}
        self._busy: dict[TrialId, float] = {}
        """Seconds of slots under gangs before the newest."""
        self._newest_values: dict[TrialId, float] = {}
        self._next: dict[TrialId, int] = {}
        """The number of the report that comes next: trials that were paused continue there."""

    def run(self) -> SimulatedRun:
        """Replay all trials to the end of the run."""
        self._feed(on.RunStarted(0.0, _RUN, self._limits))
        for number in range(self._slots):
            agent = AgentId(f"slot-{number}")
            self._feed(on.AgentJoined(0.0, agent, 0, f"host-{number}"))
            self._feed(on.AgentSent(0.0, agent, m.Ready(_RUN)))
        while self._heap:
            at, _, agent, member, number = heapq.heappop(self._heap)
            self._happens(at, agent, member, number)
        sweep = self._machine.last
        if sweep is None or not sweep.ended:
            raise BugError("the simulated run has no end: please report this, with the curves")
        return self._result(sweep)

    def _happens(self, at: float, agent: AgentId, member: Member, number: int) -> None:
        """Report `number` of a member, or its end after the last one."""
        curve = self._curves[self._proposed[member.trial]]
        if number < 0:
            self._send(at, agent, m.MemberStarted(member, 0))
            self._schedule(agent, member, self._next.get(member.trial, 0))
            return
        if number >= len(curve.points) or member in self._advised:
            value = self._newest_values.get(member.trial)
            self._ended[member.trial] = at
            self._busy[member.trial] = self._busy.get(member.trial, 0.0) + at - self._started_at[member.trial]
            metrics = {} if value is None else {self._metric: value}
            self._send(at, agent, m.MemberEnded(member, Outcome(at - self._started_at[member.trial], metrics=metrics)))
            return
        point = curve.points[number]
        self._newest_values[member.trial] = point.value
        self._next[member.trial] = number + 1
        if self._saves:
            manifest = f"{member.trial}-{number}"
            saved = Checkpoint(member.generation, point.step, manifest, manifest)
            self._send(at, agent, m.CheckpointStored(member, saved))
        report = Report(point.step, {self._metric: point.value})
        self._send(at, agent, m.MemberReported(member, (report,)))
        if member in self._advised:
            self._push(at + self._stop_s, agent, member, len(curve.points))
        else:
            self._schedule(agent, member, number + 1)

    def _schedule(self, agent: AgentId, member: Member, number: int) -> None:
        curve = self._curves[self._proposed[member.trial]]
        first = self._first[member.trial]
        start_s = curve.points[first - 1].seconds if first else 0.0
        end_s = curve.points[number].seconds if number < len(curve.points) else curve.seconds
        self._push(self._started_at[member.trial] + end_s - start_s, agent, member, number)

    def _push(self, at: float, agent: AgentId, member: Member, number: int) -> None:
        # Of the same time what was scheduled first happens first: the same curves give the same run.
        heapq.heappush(self._heap, (at, next(self._order), agent, member, number))

    def _send(self, at: float, agent: AgentId, message: m.StateInput) -> None:
        self._feed(on.AgentSent(at, agent, message))

    def _feed(self, event: on.Event) -> None:
        """Fold the event, and do what the machine commands, as a coordinator and its agents would."""
        for command in self._machine.handle(event):
            match command:
                case do.PlaceMember(agent=agent, member=member):
                    self._started_at[member.trial] = event.at + self._start_s
                    self._started.setdefault(member.trial, event.at + self._start_s)
                    self._first[member.trial] = self._next.get(member.trial, 0)
                    self._push(event.at + self._start_s, agent, member, -1)
                case do.Send(message=m.Advise(member=member)):
                    self._advised.add(member)
                case do.Suggest(count=number):
                    self._suggest(event.at, number)
                case do.ConcludeTrial(trial=trial):
                    self._concluded(trial)

    def _suggest(self, at: float, number: int) -> None:
        indexes, exhausted = self._search.propose(number)
        self._proposed += indexes
        cases = tuple({"curve": index} for index in indexes)
        self._feed(on.Suggested(at, _RUN, cases, exhausted))

    def _concluded(self, number: TrialId) -> None:
        assert self._machine.last is not None
        last = self._next.get(number, 0) - 1
        step = self._curves[self._proposed[number]].points[last].step if last >= 0 else 0
        self._search.observe(self._machine.last.trials[number], self._newest_values.get(number), step)

    def _result(self, sweep: Sweep) -> SimulatedRun:
        trials = tuple(
            SimulatedTrial(
                trial.status,
                self._started[number],
                self._ended[number],
                self._newest_values.get(number, math.nan),
                self._busy[number],
                self._proposed[number],
            )
            for number, trial in sweep.trials.items()
        )
        candidates = [
            number
            for number, trial in enumerate(trials)
            if trial.status is TrialStatus.SUCCEEDED and math.isfinite(trial.value)
        ]
        best = min(candidates, key=lambda number: (self._sign * trials[number].value, number), default=None)
        return SimulatedRun(self._slots, self._stopper, trials, best)
