"""What one call of `sweep()` passes to the coordinator, and what that returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sparktrain.base.ids import Member
from sparktrain.config.backends import Backend
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.datasets.manifest import MemberData
from sparktrain.display.progress import Display
from sparktrain.driver.feeds.stream_jobs import StreamFeeds
from sparktrain.driver.prepare.owned_run import OwnedRun
from sparktrain.driver.tracking.callback_feed import CallbackFeed
from sparktrain.protocol.feed_messages import MemberStreams
from sparktrain.protocol.member_call import MemberCall, MemberGang
from sparktrain.protocol.messages import StartMember
from sparktrain.protocol.server_keys import ServerKeys
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.sampled_space import Leaves, leaves_for
from sparktrain.search.sampler import Sampler
from sparktrain.state.commands import EndRun, PlaceMember
from sparktrain.state.events import Allotment, RunLimits
from sparktrain.state.outcome import Report
from sparktrain.state.records import DriverStarted
from sparktrain.store.base import Store

FIRST = 3
"""Number of trials that must at least fail in the same way before that ends a run."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run, ready to start."""

    owned: OwnedRun
    sampler: Sampler
    total: int | None
    """Number of trials, where that is known."""
    allotment: Allotment
    """How many agents the run gets."""
    display: Display
    driver_started: DriverStarted
    """The journal's record of this driver."""
    lookahead: int = 1
    """Cases that a sampler that learns is asked for ahead of need: a slot that becomes free need not wait for it."""
    data: MemberData = field(default_factory=MemberData)
    """Where trials find their datasets."""
    streams: StreamFeeds | None = None
    """Runs the jobs that feed streams; None without any."""
    servers: ServerKeys = field(default_factory=ServerKeys)
    """How members reach the gang's own parameter servers."""
    listener: CallbackFeed | None = None
    """Reports to callbacks; None without any."""

    @property
    def agents(self) -> int:
        """Number of agents that were asked for."""
        return self.allotment.agents

    @cached_property
    def spec(self) -> SweepSpec:
        """The specification of the run."""
        return self.owned.definition.spec

    @cached_property
    def store(self) -> Store:
        """The store that has its files."""
        return self.owned.definition.store

    @cached_property
    def layout(self) -> RunLayout:
        """The paths of its files."""
        return self.owned.definition.layout

    @property
    def leaves(self) -> Leaves:
        """The distributions and lists of the space, by their paths."""
        return leaves_for(self.owned.definition.space, self.spec.stopper)

    def placed(self, member: Member, params: Mapping[str, Any]) -> None:
        """Report that a member starts."""
        if self.listener is not None:
            self.listener.placed(member, params)

    def reported(self, member: Member, reports: Sequence[Report]) -> None:
        """Pass on what a member reports."""
        if self.listener is not None:
            self.listener.reported(member, reports)

    def trial_ended(self, trial: TrialResult) -> None:
        """Report that a trial has its final status."""
        self.display.trial_ended(trial)
        if self.listener is not None:
            self.listener.trial_ended(trial)

    @property
    def stream_keys(self) -> MemberStreams:
        """What members need to be fed."""
        return self.streams.keys if self.streams is not None else MemberStreams()

    def start_of(self, start: PlaceMember) -> StartMember:
        """What the agent of a member needs to start it."""
        spec = self.spec
        gang = MemberGang(
            size=start.size,
            backend=spec.gang.backend,
            may_grow=start.may_grow,
            may_shrink=spec.gang.min_workers not in (None, spec.gang.size),
            port=start.port,
            ring=start.ring,
            prepared=start.prepared,
            local_steps=spec.gang.local_steps,
            servers=self.servers,
        )
        call = MemberCall(
            params=start.params,
            seed=spec.seed_of(start.member.trial),
            metric=spec.metric,
            judged=spec.judges(start.member.rank),
            replica=spec.replication.replica(start.member.trial),
            gpu_mib=spec.gpu_mib,
            env=self.owned.run.call.env,
            data=self.data,
            streams=self.stream_keys,
            gang=gang,
            options=spec.member_options,
        )
        return StartMember(
            member=start.member,
            call=call,
            store=self.store.address,
            checkpoint=start.checkpoint,
            memory=start.memory,
        )

    def limits(self) -> RunLimits:
        """The part that decisions depend on."""
        spec = self.spec
        replicas = spec.replication.size
        slots = self.agents // spec.gang.size
        return RunLimits(
            spec=spec,
            roles=spec.gang.roles(),
            lookahead=self.lookahead if self.sampler.learns else max(1, slots // replicas),
            recovers=spec.recovers or spec.gang.size > 1,
            restarts_members=self.streams is None and not self.data.sets,
            restarts_servers=spec.gang.backend is Backend.PARAMETER_SERVER,
            heals=self.streams is None and spec.member_options.healing,
            alike_failures=max(FIRST, 2 * slots) * replicas if spec.max_failures == "auto" else None,
            total=self.total,
            allotment=self.allotment,
            leaves=self.leaves,
        )


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run: all its trials, and how it ended."""

    trials: tuple[TrialResult, ...]
    end: EndRun
    seconds: float
    """Duration of the run under all drivers; under one that was lost, up to its newest record."""
    outlook: str = ""
    """The cluster's last report about agents that had not joined."""
    wall_s: float = 0.0
    """From the start of the first driver to the end."""
