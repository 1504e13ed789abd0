"""Why a run is over."""

from enum import StrEnum
from typing import NamedTuple


class Ending(StrEnum):
    """Why a run is over."""

    COMPLETE = "complete"  # every trial that the sampler had is final
    STOPPED = "stopped"  # by the user or by the run's timeout
    TERMINATED = "terminated"  # its driver got SIGTERM: the next one continues
    NO_AGENTS = "no agents"  # fewer agents than a gang needs, for too long
    UNAVAILABLE = "unavailable"  # the agents' Spark job is over for good
    UNLOADABLE = "unloadable"  # executors cannot load the training function
    UNPREPARED = "unprepared"  # before it started: its data could not be written, or its slots were taken meanwhile
    TARGET = "target"  # a trial reached the value that the user wants
    PLATEAU = "plateau"  # the last trials have not improved the best one
    BUDGET = "budget"  # the slots have trained for as long as they may
    FAILING = "failing"  # too many trials failed, or all of the first ones in the same way

    @property
    def satisfied(self) -> bool:
        """The run has what it was asked for: trials that did not run, or were ended, are no fault."""
        return self in (Ending.COMPLETE, Ending.TARGET, Ending.PLATEAU, Ending.BUDGET)

    @property
    def interrupted(self) -> bool:
        """The user, a timeout or a signal has ended the run before its trials."""
        return self in (Ending.STOPPED, Ending.TERMINATED)

    @property
    def infrastructure(self) -> bool:
        """The cluster ended the run: trials without a result are lost, not stopped."""
        return self in (Ending.NO_AGENTS, Ending.UNAVAILABLE)


class Stop(NamedTuple):
    """Why a run ends before its trials do."""

    reason: str
    ending: Ending
