"""How one member's process ended, and who has to act on it."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

DRIVER_LOST = "the driver was lost, or stopped the run"
LACKS_METRIC = "the result lacks metric"
"""How a failure of the kind `metric` starts when the function did not return the metric."""

REFUSES_ARGUMENTS = "the script's parser refuses its arguments"
"""In a failure: the parser of a script did so, before the script reported anything."""


class FailureKind(StrEnum):
    """Why a member failed. The value is the word in `results.json`."""

    EXCEPTION = "exception"  # the training function raised
    SIGNAL = "signal"  # the process crashed by a signal, such as SIGSEGV
    KILLED = "killed"  # the process was ended from outside, by SIGKILL, SIGTERM or SIGHUP, and not for lack of memory
    MEMORY = "memory"  # the process was killed with SIGKILL: out of memory
    EXIT = "exit"  # the process ended itself before the function returned
    RESULT = "result"  # the function returned something that is no result
    METRIC = "metric"  # the result lacks the metric, or the metric is not finite
    TIMEOUT = "timeout"  # the trial ran longer than it may
    LOAD = "load"  # the function could not be loaded on the executor
    LOST = "lost"  # the process, its agent or its executor was lost, or the process was stopped by a signal
    FORM = "form"  # the members could not be connected in time, or a port was taken
    RING = "ring"  # an operation of the ring failed: another member is gone, or stuck
    MISMATCH = "mismatch"  # members of the gang ran different programs or operations of the ring, or had other weights
    HANG = "hang"  # the member finished no training step for too long
    CHECKPOINT = "checkpoint"  # the checkpoint to resume from is corrupt
    STOPPED = "stopped"  # the run was stopped before the trial had ended

    @property
    def follows(self) -> bool:
        """It may only follow from another member's failure, which is the cause."""
        return self in (FailureKind.FORM, FailureKind.RING)


class Loss(StrEnum):
    """The cluster's reason for the loss of an agent. The value is the word in `results.json`."""

    PREEMPTED = "preempted"  # its container was given to another queue
    NODE = "node"  # its node was lost, or was short of memory or disk
    DECOMMISSIONED = "decommissioned"  # its node, or its executor, was taken out of service
    KILLED = "killed"  # its executor was ended by a signal, for an unknown reason
    ANNOUNCED = "announced"  # something had announced that it leaves, such as SIGTERM or `notice`
    MASTER = "master"  # Spark's application master was lost, and with it all executors
    MEMORY = "memory"  # its container used more memory than it may
    STORAGE = "storage"  # its pod used more local storage than it may
    OTHER = "other"  # its executor was lost for another reason

    @property
    def kind(self) -> FailureKind:
        """The kind that the failure counts as."""
        return FailureKind.MEMORY if self is Loss.MEMORY else FailureKind.LOST

    @property
    def excused(self) -> bool:
        """The cluster took the agent: that counts against no limit of the user's."""
        return self is not Loss.OTHER and not self.own

    @property
    def own(self) -> bool:
        """The training has caused it itself: else, also where it was announced, it would recur for ever."""
        return self in (Loss.MEMORY, Loss.STORAGE)


class Failure(Struct, frozen=True):
    """The root cause of a failed member, as text: only training processes unpickle objects of the user."""

    kind: FailureKind
    summary: str
    """One line: what happened, and what to do where that is known."""
    traceback: str = ""
    """The traceback of an exception, outermost frames of sparktrain removed; at most 64 KiB."""
    log_tail: tuple[str, ...] = ()
    """The last lines that the process printed."""
    rank: int | None = None
    """Rank of the failed member, once the coordinator knows it."""
    host: str | None = None
    """Host of that member."""
    loss: Loss | None = None
    """The cluster's reason, where an agent was lost and the cluster reported one."""

    def __str__(self) -> str:
        """For `print`: what failed and where, then the traceback, or the last lines that the process printed."""
        place = [] if self.rank is None else [f"rank {self.rank}"]
        place += [] if self.host is None else [f"host {self.host}"]
        where = f" ({', '.join(place)})" if place else ""
        lines = [f"{self.kind}: {self.summary}{where}"]
        if self.traceback:
            lines.append(self.traceback.rstrip())
        elif self.log_tail:
            lines += ["the last lines that it printed:", *(f"    {line}" for line in self.log_tail)]
        return "\n".join(lines)

    @property
    def ending(self) -> str:
        """The last lines that a failed process prints."""
        summary = "" if self.summary in self.traceback else f"[sparktrain] failed: {self.summary}\n"
        return f"{self.traceback.rstrip()}\n{summary}".lstrip("\n")


class RestartHow(StrEnum):
    """How a gang continued. Files have it as four flags: see `rundir.restart_fields`."""

    RESTARTED = "restarted"  # it was lost, and formed again
    PAUSED = "paused"  # it was not lost: a rule paused the trial, or another gang continues from the same step
    DRAINED = "drained"  # it was not lost: another gang continues on other agents, since its own were drained
    ALONE = "alone"  # one member restarted beside parameter servers, and the others trained on
    HEALED = "healed"  # the others kept their state, and formed a ring with the next process of the lost member
    SHRUNK = "shrunk"  # the others kept their state, and formed a ring without the lost member
    JOINED = "joined"  # no member was lost: the others formed a ring with a process for a place that was vacant
    MOVED = "moved"  # no member was lost: the others formed a ring with a process on another agent than the drained one


OF_RING = frozenset({RestartHow.HEALED, RestartHow.SHRUNK, RestartHow.JOINED, RestartHow.MOVED})
OF_MEMBER = OF_RING | {RestartHow.ALONE}
"""The gang stays in its generation."""
OF_DRAIN = frozenset({RestartHow.DRAINED, RestartHow.MOVED})
PLANNED = OF_DRAIN | {RestartHow.PAUSED, RestartHow.JOINED}
"""Nothing was lost."""


class Restart(Struct, frozen=True):
    """The restart of a lost gang, or of one member of it: the root cause, and what it cost."""

    rank: int
    """Rank of the member that was lost first, in the generation that ended."""
    host: str | None
    """Host of that member."""
    kind: FailureKind
    cause: str
    """Summary of the failure: one line."""
    seconds: float
    """From the loss until all members train again; for a lost driver, since the start of the next."""
    resumed_from_step: int | None = None
    """Step of the checkpoint that training resumed from; None without one. Of a member that
    restarted alone: step of the gang's newest checkpoint, which the others did not go back to; where a ring healed, the
    newest step after which a member kept the state."""
    steps_lost: int | None = None
    """Steps that the model repeats: a member had finished them, and no member kept the state after them. An agent reads
    the newest step of a process that is gone; of an agent that is lost, the newest report counts, which members send
    each half second. None where they reported none."""
    loss: Loss | None = None
    """The cluster's reason, where an agent was lost and the cluster reported one."""
    how: RestartHow = RestartHow.RESTARTED
    """How the gang continued."""
    members: int | None = None
    """Members that train on after a ring has healed without a next process of this one; None for any other restart."""
    full_size: int | None = None
    """Members of the gang when none is lost, beside `members`."""
    reached_step: int | None = None
    """The newest step that the gang had finished or reported at the loss; None without any, and where an older
    sparktrain wrote the record."""

    @property
    def alone(self) -> bool:
        """Only this member restarted, in the same generation: beside parameter servers, or in a ring that healed."""
        return self.how in OF_MEMBER

    @property
    def paused(self) -> bool:
        """The gang was not lost: a rule paused the trial, which gave back its slots, or another gang continues."""
        return self.how in PLANNED

    @property
    def healed(self) -> bool:
        """The other members kept their processes and state, and formed a ring with the next process of this one."""
        return self.how in OF_RING

    @property
    def drained(self) -> bool:
        """This member's agent was drained, and the trial continues on other agents; then `paused` is true, too."""
        return self.how in OF_DRAIN

    @property
    def excused(self) -> bool:
        """The restart counts against no limit of the user's."""
        return self.cause == DRIVER_LOST or (self.loss is not None and self.loss.excused)


class Report(Struct, frozen=True):
    """Metrics that the training function reported for one step."""

    step: int
    metrics: dict[str, float]
    time: float = 0.0
    """Seconds since 1970, by the clock of the member's host; 0 where unknown."""


class EndedEarly(Struct, frozen=True):
    """The training function has ended its trial because it cannot win."""

    step: int
    """The newest step that it reported; 0 without one."""
    value: float | None
    """The metric there; None where there is none, or it is not finite."""
    reason: str
    """In one line."""


class Outcome(Struct, frozen=True, gc=False):
    """The result of one member: metrics, or a failure."""

    seconds: float
    """From the call of the training function to its end."""
    metrics: dict[str, float] | None = None
    failure: Failure | None = None
    notices: tuple[str, ...] = ()
    """What the user should know about the training, one line each."""
    pruned: EndedEarly | None = None
    """The function has ended the trial because it cannot win; then there are no metrics."""
    extra: dict[str, Any] = {}
    """What it returned beside numbers, in JSON's own types."""
    exported: str = ""
    """SHA-256 of the description of the model that it exported; empty without one, and for models of Keras."""


def lost(host: str, reason: str) -> Outcome:
    """The outcome of a member when its agent is lost."""
    return Outcome(seconds=0.0, failure=Failure(FailureKind.LOST, lost_agent(host, reason)))


def lost_agent(host: str, reason: str) -> str:
    """The loss of an agent in one line."""
    return f"agent on {host} was lost: {reason}"
