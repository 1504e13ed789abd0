"""The status of a running run, and the base of displays that show it."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.gangs.step_times import SlowMember, StepTimes
from sparktrain.state.outcome import Restart


class MemberState(StrEnum):
    """The state of a member of a gang. The value is the word that is shown."""

    STARTING = "starting"  # its process loads the training function, and connects to the others
    TRAINING = "training"  # it is in the training function
    ENDED = "ended"  # its process is gone


class MemberLine(Struct, frozen=True):
    """One member of a running gang."""

    rank: int
    host: str | None
    role: Role
    state: MemberState
    step: int | None = None
    """Training steps that it has finished; None before the first, and where it reports none."""
    steps_per_s: float | None = None
    metrics: dict[str, float] = {}
    """The metrics of its newest report."""
    times: StepTimes | None = None
    """Where its steps go; None where no ring notes that."""


class RunningTrial(Struct, frozen=True):
    """A trial with a gang that trains or starts."""

    id: TrialId
    params: dict[str, Any]
    seconds: float
    """Since its newest generation entered the training function; 0 before."""
    step: int | None = None
    """The step of the newest report."""
    metrics: dict[str, float] = {}
    """The metrics of the newest report."""
    host: str | None = None
    """The host of its chief."""
    members: tuple[MemberLine, ...] = ()
    """The members of its gang, by rank; none where a trial has one member."""
    slow: SlowMember | None = None
    """The member that the others wait for."""
    standby: str = ""
    """The processes that wait for the loss of a member, in one line; empty without `standby`."""


class RunStanding(Struct, frozen=True, kw_only=True):
    """The number of trials by status, and the best trial: what the live display and `sparktrain status` share."""

    total: int | None
    """Trials of the whole run; None when the sampler proposes trials until it is stopped."""
    done: int
    """Trials with a final status, the failed, lost and stopped ones among them."""
    running: int
    queued: int
    """Trials that are known and do not run, those that wait for a retry among them."""
    failed: int
    lost: int
    stopped: int = 0
    pruned: int = 0
    """Stopped early by a rule: a result, unlike that of a stopped trial."""
    paused: int = 0
    """Trials that a rule has paused until they are promoted."""
    metric: str | None = None
    best: tuple[int, float] | None = None
    """The best trial so far, and its metric; with repeats or folds the best case, and its mean."""
    replicas: int = 1
    """Trials of each set of parameters."""

    @property
    def to_come(self) -> int:
        """Trials that the sampler has not proposed yet; 0 where their number is not known."""
        proposed_count = self.done + self.running + self.queued + self.paused
        return 0 if self.total is None else max(0, self.total - proposed_count)

    @property
    def best_name(self) -> str:
        """The best trial or case, in words."""
        number = "" if self.best is None else self.best[0]
        return f"trial {number}" if self.replicas == 1 else f"case {number} (mean of {self.replicas} trials)"


class Progress(RunStanding, frozen=True, kw_only=True):
    """The status of a run at one moment, as its driver knows it."""

    name: str
    seconds: float
    """Since this driver started the run."""
    eta_s: float | None
    """Seconds until every trial is final, as far as is known; see `time_left`."""
    agents_alive: int = 0
    agents_wanted: int = 0
    restarts: int = 0
    """How often a gang restarted after a loss."""
    running_trials: tuple[RunningTrial, ...] = ()
    gang: int = 1
    """Members in the gang of each trial."""
    in_step: bool = False
    """Whether the members that train make each step together."""
    causes: tuple[Restart, ...] = ()
    """The restarts of a run of one gang: why, and what they cost; oldest first."""
    note: str = ""
    """What the run waits for, such as `waiting for agents (0 of 2)`; empty when it waits for nothing."""


class Display:
    """Base of what shows a run to its user. Between `start` and `close`, any one thread calls the rest.

    No method raises or waits for the terminal: a run does not depend on its display.
    """

    def start(self) -> None:
        """Start; called once, before anything else."""

    def print_line(self, line: str) -> None:
        """Show a line that stays, such as the first lines of a run; any thread may call it."""

    def update(self, progress: Progress) -> None:
        """Show this status; called up to ten times a second, and at least once a second so that clocks advance."""

    def trial_ended(self, trial: TrialResult) -> None:
        """A trial is final; called once for each."""

    def close(self) -> None:
        """Show the last news and release the terminal. Blocks for some seconds when the terminal is stuck."""


class NullDisplay(Display):
    """Shows nothing."""
