"""Agents on which members fail before they enter the training function back off, and are excluded in the end. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sparktrain.base.ids import TrialId
from sparktrain.state.agents import AgentState
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.trial import Trial

FIRST_BACK_OFF_S = 5.0
"""How long an agent gets no member after one has failed on it before it entered; twice as long each further time."""
LONGEST_BACK_OFF_S = 300.0
EXCLUDED_AFTER = 3
"""An agent gets no more members once so many different trials in a row have failed on it before they entered."""
NEVER_ENTERED = frozenset(
    {
        FailureKind.LOST,
        FailureKind.LOAD,
        FailureKind.SIGNAL,
        FailureKind.KILLED,
        FailureKind.MEMORY,
        FailureKind.EXIT,
    }
)
"""Failures that are the agent's, or its host's, where they come before the training function is entered."""

HostSlot = tuple[str, int]
"""Host and slot, which identify an agent that rejoins."""


@dataclass(slots=True)
class _Illness:
    failures: int = 0
    until: float = 0.0
    """When it may get another member."""
    trials: set[TrialId] = field(default_factory=set)
    last: str = ""

    @property
    def excluded(self) -> bool:
        return len(self.trials) >= EXCLUDED_AFTER


class Health:
    """Failures on agents before members entered, in one run. A resumed run forgets them: hosts may be repaired."""

    def __init__(self) -> None:
        self.unloadable: dict[str, Failure] = {}
        """Hosts that could not load the training function, and where no member has entered it since."""
        self.first_failed_at: float | None = None
        """When a member first failed before it entered."""
        self._ill: dict[HostSlot, _Illness] = {}
        self._barred: dict[TrialId, set[str]] = {}

    def load_failure(self, trials: Iterable[Trial]) -> Failure | None:
        """Why the training function could not be loaded: in one of `trials`, or on a host."""
        failures = (trial.failure for trial in trials if trial.failure)
        return next((cause for cause in (*failures, *self.unloadable.values()) if cause.kind is FailureKind.LOAD), None)

    def entered(self, agent: AgentState) -> None:
        """A member on the agent has entered the training function: the agent is healthy."""
        if self._ill.pop(_slot(agent), None) is None:
            return
        self.unloadable.pop(agent.host, None)
        for hosts in self._barred.values():
            hosts.discard(agent.host)

    def failed(self, agent: AgentState, trial: TrialId, failure: Failure, at: float) -> bool:
        """A member on the agent has failed before it entered; returns whether that excludes the agent."""
        if self.first_failed_at is None:
            self.first_failed_at = at
        if failure.kind is FailureKind.LOAD:
            self.unloadable[agent.host] = failure
        ill = self._ill.setdefault(_slot(agent), _Illness())
        was_excluded = ill.excluded
        ill.until = at + min(FIRST_BACK_OFF_S * 2 ** min(ill.failures, 9), LONGEST_BACK_OFF_S)
        ill.failures += 1
        ill.trials.add(trial)
        ill.last = failure.summary
        self._barred.setdefault(trial, set()).add(agent.host)
        return ill.excluded and not was_excluded

    @property
    def all_well(self) -> bool:
        """No agent backs off or is excluded."""
        return not self._ill

    def excluded(self, agent: AgentState) -> bool:
        """The agent gets no more members of the run."""
        ill = self._ill.get(_slot(agent))
        return ill is not None and ill.excluded

    def backs_off(self, agent: AgentState, at: float) -> bool:
        """The agent gets no member now."""
        ill = self._ill.get(_slot(agent))
        return ill is not None and (ill.excluded or at < ill.until)

    def failed_on(self, host: str) -> bool:
        """The newest member of some agent of the host has failed before it entered."""
        return any(name == host for name, _ in self._ill)

    def barred(self, trial: TrialId) -> set[str]:
        """Hosts on which the trial failed before it entered: it waits for another host, if there is one."""
        return self._barred.get(trial, set())

    def exclusions(self, agents: Sequence[AgentState]) -> str:
        """How many of `agents` are excluded, and why; empty when none is."""
        excluded = [] if self.all_well else [agent for agent in agents if self.excluded(agent)]
        if not excluded:
            return ""
        hosts = {agent.host: self.why(agent) for agent in excluded}
        return f"{len(excluded)} of {len(agents)} agents are excluded: {'; '.join(hosts.values())}"

    def why(self, agent: AgentState) -> str:
        """Why an agent backs off or is excluded, in one line; empty for a healthy agent."""
        ill = self._ill.get(_slot(agent))
        if ill is None:
            return ""
        trials, they = ("1 trial", "it") if len(ill.trials) == 1 else (f"{len(ill.trials)} trials", "they")
        return f"{trials} failed on {agent.host} before {they} entered the training function, the last with: {ill.last}"


def _slot(agent: AgentState) -> HostSlot:
    return agent.host, agent.slot
