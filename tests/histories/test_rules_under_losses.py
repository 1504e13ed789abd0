"""Rules that stop, pause and exchange trials, while drivers and agents are lost and trials end in every way.

A sweep here runs simulated training functions with known values at each step. The oracle is the function that trains
on: whatever was lost, a trial that succeeds has all of its steps, and the value after them.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.base.ids import AgentId, Member, TrialId
from sparktrain.config.distribution import uniform
from sparktrain.config.gang_spec import Role
from sparktrain.config.stoppers import ASHA, PBT, Hyperband, Median, Patience, Threshold
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state import recovery
from sparktrain.state.ending import Ending
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import EndedEarly, Failure, FailureKind, Outcome, Report
from sparktrain.state.pruning.exploits import Exploits
from sparktrain.state.pruning.pruned_trials import NO_CHECKPOINT
from sparktrain.state.pruning.stopper import Stopper
from sparktrain.state.records import DriverStarted, TrialsAdded
from sparktrain.state.restart import Decision
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialPause, TrialStatus
from tests.histories.test_gangs import check_journal
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S, RUN, World

LENGTH = 9
"""Steps of a whole trial."""
TRIALS = 6
TIMEOUT_S = 60.0
RULES: dict[str, tuple[Any, ...]] = {
    "promote": (ASHA(most=LENGTH, first=1, eta=3, promote=True),),
    "promote-by-halves": (ASHA(most=LENGTH, first=2, eta=2, promote=True),),
    "promote-and-hyperband": (ASHA(most=LENGTH, first=1, eta=2, promote=True), Hyperband(eta=2)),
    "asha": (ASHA(most=LENGTH, first=1, eta=2),),
    "asha-unknown": (ASHA(eta=2),),
    "hyperband-unknown": (Hyperband(eta=2),),
    "median": (Median(min_trials=1),),
    "patience": (Patience(steps=2), Threshold(upper=3.0)),
    "pbt": (PBT(every=2, quantile=0.5, resample=0.0, factors=(1.5,), most=LENGTH),),
    "pbt-and-promote": (
        PBT(every=2, quantile=0.4, factors=(1.5,), most=LENGTH),
        ASHA(most=LENGTH, eta=2, promote=True),
    ),
    "none": (),
}
PAUSING = ("promote", "promote-by-halves")
HISTORIES = 300
FATES = ("raises", "is killed", "returns nan", "reports nan", "hangs", "is lost", "is stopped", "ends early")
OWN_ENDS = {
    "raises": FailureKind.EXCEPTION,
    "is killed": FailureKind.SIGNAL,
    "returns nan": FailureKind.METRIC,
    "hangs": FailureKind.TIMEOUT,
}
"""What ends a trial by its own fault."""


def loss(trial: int, step: int) -> float:
    """The value of a trial after a step: in another order at each trial, and better with each step."""
    return (trial * 5 % TRIALS) / 10 + 1.0 / step


@dataclass
class Function:
    """The training function of one member, between two of its steps."""

    member: Member
    step: int
    entered: bool = False
    advised: bool = False
    due: list[str] = field(default_factory=list)
    """What comes next in its loop."""


@dataclass(frozen=True)
class Plan:
    """How the training functions of one history are written, and what happens to them."""

    rule: str
    loop: tuple[str, ...] = ("report", "save", "look")
    """What a function does in each step, in this order."""
    save_every: int = 1
    fates: dict[tuple[int, int], str] = field(default_factory=dict)
    """By trial and step: what happens in that step. A loss happens once."""
    agents: int = 1
    size: int = 1
    replicas: int = 1
    kills: tuple[int, ...] = ()
    """After how many records each driver is killed."""
    stops: int | None = None
    """After how many turns the user stops the run, and resumes it."""

    @property
    def can_pause(self) -> bool:
        """A rule pauses its trials, and each trial has a checkpoint at its pause: the best one comes to its end."""
        saves = self.save_every == 1 and self.loop[-1] == "look"
        losses = set(self.fates.values()) <= {"is lost"}
        return self.rule in PAUSING and saves and losses


class History:
    """Plays a plan; `ended` has the run of the last driver."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.draw = random.Random(seed)
        self.fates = dict(plan.fates)
        self.functions: dict[AgentId, Function] = {}
        self.started = Counter[int]()
        """How often the gang of each trial has started."""
        self.failed: set[int] = set()
        """Trials that have ended by their own fault."""
        self._agents = 0
        self._seen = 0
        self._written = 0
        self.world = World(Machine(LEASE_S), cases=TRIALS // plan.replicas)
        self.world.begin(**self.limits)

    @property
    def limits(self) -> dict[str, Any]:
        workers = [Role.WORKER] * (self.plan.size - 1)
        limits = {"roles": (Role.CHIEF, *workers), "metric": "loss", "mode": "min", "stopper": RULES[self.plan.rule]}
        leaves = {"leaves": (("x", uniform(0, 100)),), "seed": 3, "repeats": self.plan.replicas}
        return {**limits, **leaves, "trial_timeout_s": TIMEOUT_S, "max_retries": 20}

    @property
    def trials(self) -> dict[TrialId, Trial]:
        assert self.world.machine.last is not None
        return self.world.machine.last.trials

    # ---- drivers

    def play(self) -> None:
        """All drivers, one after the other."""
        for kill in self.plan.kills:
            self.drive(kill)
            self.succeed(self.world.records[:kill])
        if self.plan.stops is not None:
            self.drive(turns=self.plan.stops)
            if self.world.machine.sweep is not None:
                self.world.stop(grace_s=1.0)
                self.world.tick(30.0)
                self.follow()
                self.drive()
            self.succeed(self.world.records)
        self.drive()

    def succeed(self, records: list[Any], *, retry_failed: bool = False) -> None:
        """The driver is gone, and all agents with it; the next one has these records."""
        before = self.world
        added = sum(len(record.cases) for record in records if isinstance(record, TrialsAdded))
        self.world = World(Machine(LEASE_S), at=before.at, cases=TRIALS // self.plan.replicas - added)
        start = DriverStarted(plan="p", at=before.at, retry_failed=retry_failed)
        self.world.feed(on.RunStarted(before.at, RUN, run_limits(**self.limits), tuple(records), start))
        self.world.records = [*records, *self.world.records]
        self.functions, self._seen = {}, 0

    def drive(self, until: int | None = None, turns: int = 20_000) -> None:
        """One driver, until the run is over, there are so many records, or it had so many turns."""
        for _ in range(turns):
            if self.world.machine.sweep is None or (until is not None and len(self.world.records) >= until):
                return
            self.world.suggest()
            self.follow()
            while len(self.world.machine.agents) < self.plan.agents * self.plan.size:
                self._agents += 1
                self.world.join(f"agent-{self._agents}")
                self.world.suggest()
            self.follow()
            if self.functions:
                self.turn(self.draw.choice(sorted(self.functions)))
                self.follow()
            else:
                self.world.tick(1.0)
            check_rules(self.world)
        assert turns < 20_000, f"the run does not end: {self.world.machine.sweep.__dict__}"

    # ---- members

    def follow(self) -> None:
        """Take the machine's messages to the members."""
        while self._seen < len(self.world.commands):
            command = self.world.commands[self._seen]
            self._seen += 1
            if isinstance(command, do.PlaceMember):
                newest = 0 if command.checkpoint is None else command.checkpoint.step
                self.functions[command.agent] = Function(command.member, newest)
                self.started[command.member.trial] += command.member.rank == 0
            elif isinstance(command, do.DropAgent):
                self.functions.pop(command.agent, None)
            elif isinstance(command, do.Send) and command.agent in self.functions:
                self._hear(command.agent, self.functions[command.agent], command.message)

    def _hear(self, agent: AgentId, function: Function, message: m.StateOutput) -> None:
        if message.member != function.member:
            return
        if isinstance(message, m.Judged):
            pruned = self.trials[message.member.trial].pruning is not None
            assert message.step >= 0 or not message.stops or pruned, "a trial starts, and must stop at once"
            function.advised = function.advised or message.stops
        elif isinstance(message, m.Advise):
            function.advised = True
        elif isinstance(message, m.StopMember):
            self._end(agent, Outcome(1.0, failure=Failure(FailureKind.STOPPED, "stopped")))

    def turn(self, agent: AgentId) -> None:
        """The member of the agent does what comes next."""
        function = self.functions[agent]
        trial, chief = int(function.member.trial), function.member.rank == 0
        if not function.entered:
            function.entered = True
            if self.plan.size > 1:
                self.world.reserve(agent)
            self.world.enter(agent)
        elif not chief:  # it returns with the chief, or when it is advised to
            if function.advised or not self._chief_trains(function.member):
                self._end(agent, Outcome(1.0, metrics={}))
        elif not function.due and function.step >= LENGTH:  # restored from its last checkpoint
            self._act(agent, function, "look")
        elif not function.due:
            function.step += 1
            function.due = list(self.plan.loop)
            self._meet(agent, function, trial)
        else:
            self._act(agent, function, function.due.pop(0))

    def _chief_trains(self, member: Member) -> bool:
        chief = (each.member for each in self.functions.values() if each.member.rank == 0)
        return any(each.trial == member.trial and each.generation == member.generation for each in chief)

    def _act(self, agent: AgentId, function: Function, action: str) -> None:
        trial, step = int(function.member.trial), function.step
        if action == "report":
            value = float("nan") if self.fates.get((trial, step)) == "reports nan" else loss(trial, step)
            self.world.receive(agent, m.MemberReported(function.member, (Report(step - 1, {"loss": value}),)))
        elif action == "save" and step % self.plan.save_every == 0:
            self._written += 1
            self.world.write(agent, step)
        elif action == "look" and (step >= LENGTH or function.advised):
            self._end(agent, Outcome(1.0, metrics={"loss": loss(trial, step), "steps": float(step)}))

    def _meet(self, agent: AgentId, function: Function, trial: int) -> None:
        """What happens to the trial in this step."""
        fate = self.fates.get((trial, function.step))
        if fate == "is lost":
            del self.fates[trial, function.step], self.functions[agent]
            self.world.lose(agent)
        elif fate == "hangs":
            self.failed |= {int(each.member.trial) for each in self.functions.values()}  # time passes for all
            self.world.tick(TIMEOUT_S + 30.0)
        elif fate == "is stopped":
            self.world.stop_trial(trial)
        elif fate == "ends early":
            self._end(agent, Outcome(1.0, pruned=EndedEarly(function.step, None, "it cannot win")))
        elif fate in OWN_ENDS:
            self.failed.add(trial)
            self._end(agent, Outcome(1.0, failure=Failure(OWN_ENDS[fate], f"it {fate}")))

    def _end(self, agent: AgentId, outcome: Outcome) -> None:
        del self.functions[agent]
        if agent in self.world.running:
            self.world.end(agent, outcome)


def check_rules(world: World) -> None:
    """No rule waits for a trial that has its end."""
    sweep = world.machine.last
    assert sweep is not None
    stopper = sweep.pruned._stopper
    waiting = set(stopper._waiting)
    for rule in stopper._promoting:
        waiting |= {trial for place in rule._waiting.values() for _, trial in place}
    ended = {trial for trial in waiting if sweep.trials[trial].status.final}
    assert not ended or sweep.stop is not None, f"a rule waits for trials that are over: {ended}"


def check(history: History) -> None:
    """The oracle: what a trial has that trains on, whatever was lost."""
    [end] = history.world.all(do.EndRun)[-1:]
    assert end.ending is Ending.COMPLETE
    assert sorted(history.trials) == list(range(TRIALS))
    for trial in history.trials.values():
        if trial.status is TrialStatus.SUCCEEDED:
            whole = {"loss": loss(trial.id, LENGTH), "steps": float(LENGTH)}
            assert trial.metrics == whole, f"trial {trial.id} succeeds with a partial result"
        elif trial.status is TrialStatus.PRUNED:
            assert trial.pruning is not None
        else:
            assert trial.status is TrialStatus.FAILED
            assert trial.id in history.failed
    if history.plan.can_pause:
        assert TrialStatus.SUCCEEDED in {trial.status for trial in history.trials.values()}
        assert not any(NO_CHECKPOINT in trial.outcome.notices for trial in history.trials.values()), (
            "a loss ends a trial"
        )
    check_journal(history.world)


def results(history: History) -> dict[int, tuple[str, float | None]]:
    return {int(trial.id): (str(trial.status), trial.metrics.get("loss")) for trial in history.trials.values()}


def plan_of(seed: int) -> Plan:
    """A plan drawn at random."""
    draw = random.Random(seed)
    rule = sorted(RULES)[seed % len(RULES)]
    places = [(trial, step) for trial in range(TRIALS) for step in range(1, LENGTH + 1)]
    kinds = draw.choice([FATES, ("is lost",)])
    fates = {place: draw.choice(kinds) for place in draw.sample(places, draw.choice([0, 0, 2, 6]))}
    pauses = "promote" in rule
    return Plan(
        rule,
        loop=draw.choice([("report", "save", "look"), ("save", "report", "look"), ("report", "look", "save")]),
        save_every=draw.choice([1, 1, 2, 4]),
        fates=fates,
        agents=draw.choice([1, 2, 3]),
        size=draw.choice([1, 1, 2]),
        replicas=1 if pauses else draw.choice([1, 1, 3]),
        kills=tuple(sorted(draw.randint(1, 120) for _ in range(draw.choice([0, 1, 1, 2, 3])))),
        stops=draw.choice([None, None, draw.randint(1, 60)]),
    )


def random_histories(count: int) -> Counter[str]:
    """Play and check so many histories, the same ones each time; returns how their trials ended."""
    ends = Counter[str]()
    for seed in range(count):
        history = History(plan_of(seed), seed)
        history.play()
        check(history)
        ends.update(str(trial.status) for trial in history.trials.values())
        if TrialStatus.FAILED in {trial.status for trial in history.trials.values()}:
            retry(history)
    return ends


def retry(history: History) -> None:
    """The user has corrected what failed: each failed trial runs once more, and all end."""
    failed = {trial.id for trial in history.trials.values() if trial.status is TrialStatus.FAILED}
    kept = {trial: end for trial, end in results(history).items() if trial not in failed}
    before = history.started.copy()
    history.fates.clear()
    history.succeed(history.world.records, retry_failed=True)
    history.drive()
    check(history)
    again = {trial for trial in failed if history.started[trial] > before[trial]}
    assert again == failed or history.plan.replicas > 1, f"trials {failed - again} were to be retried, and did not run"
    assert {trial: end for trial, end in results(history).items() if trial in kept} == kept


def test_a_trial_that_succeeds_is_whole_in_any_history() -> None:
    ends = random_histories(HISTORIES)
    assert min(ends[status] for status in ("succeeded", "failed", "pruned")) > 50


def killed_everywhere(rule: str, stride: int = 1) -> None:
    """Kill the driver of one sweep at each of its records: its results are those of a driver that lives."""
    alive = History(Plan(rule), seed=7)
    alive.play()
    check(alive)
    expected = results(alive)
    assert "succeeded" in {status for status, _ in expected.values()}
    for kill in range(1, len(alive.world.records), stride):
        history = History(Plan(rule, kills=(kill,)), seed=7)
        history.play()
        check(history)
        assert results(history) == expected, f"the driver was killed after record {kill}"


@pytest.mark.parametrize("rule", PAUSING)
def test_a_paused_search_has_the_same_results_wherever_its_driver_is_killed(rule: str) -> None:
    killed_everywhere(rule, stride=3)


@pytest.mark.all(
    case="the driver of a sweep is killed at each record of its journal, under each rule",
    covered_by="the same at every third record, under rules that pause; random histories of all rules",
)
@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"pbt-and-promote"}))
def test_every_rule_has_the_same_results_wherever_its_driver_is_killed(rule: str) -> None:
    killed_everywhere(rule)


# ---- mistakes

MUTANTS = {
    "a pause of before ends the next gang": (
        patch.object(TrialPause, "train_to", lambda _: None),
        "must stop at once|partial result",
    ),
    "a pause of before is forgotten": (
        patch.object(TrialPause, "train_to", TrialPause.forget),
        "killed after|waits for",
    ),
    "a trial that was lost on its way to a pause is pruned": (
        patch.object(Sweep, "decide", lambda *_: Decision.FAIL),
        "a loss ends a trial|in history.failed|in set()",
    ),
    "rules wait for trials that failed": (patch.object(Stopper, "drop", lambda *_: None), "waits for trials"),
    "no trial waits for its promotion under the next driver": (
        patch.object(recovery, "_waits", lambda _: False),
        "was killed after|waits for trials",
    ),
    "a driver forgets exploits": (patch.object(Exploits, "fold", lambda *_: None), "assert"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    mistake, words = MUTANTS[mutant]
    with mistake, pytest.raises(AssertionError, match=words):
        all_histories()


def all_histories() -> None:
    """What these tests play."""
    random_histories(HISTORIES)
    for rule in PAUSING:
        killed_everywhere(rule, stride=3)
