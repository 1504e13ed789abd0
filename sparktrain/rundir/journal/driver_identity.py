"""Who owns, or has owned, a run."""

from msgspec import Struct


class DriverIdentity(Struct, frozen=True):
    """Identifies a driver, to processes that look for it and to people."""

    host: str
    pid: int
    started: float
    """Start in seconds since 1970, by its own clock."""
    sparktrain: str
    """The driver's version of sparktrain."""
    address: str = ""
    """HOST:PORT of its coordinator; empty when it does not listen."""
    fingerprint: str = ""
    """Fingerprint of the coordinator's certificate; empty when it does not listen."""
    purpose: str = ""
    """Why it has taken over the run, if not to run its trials."""
    application: str = ""
    """The YARN application in which it runs, as in `1795280325843_0001`; empty outside of YARN."""
    attempt: int = 0
    """YARN restarts an application when its driver is lost: the number of this attempt, from 1."""
    user: str = ""
    """The user who started it; empty where an older sparktrain did."""

    def replaces(self, other: "DriverIdentity") -> bool:
        """Whether YARN has given up the other driver, and started this one in its place."""
        return self.application == other.application != "" and self.attempt > other.attempt

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}{f' ({self.purpose})' if self.purpose else ''}"
