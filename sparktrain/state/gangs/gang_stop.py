"""Why a gang ends, and until when its members may take for that."""

from msgspec import Struct

from sparktrain.base.ids import Rank
from sparktrain.state.gangs import timeouts
from sparktrain.state.moments import later
from sparktrain.state.outcome import Failure
from sparktrain.state.seats.seat_change import SeatChange


class GangFault(Struct, gc=False):
    """What went wrong in a gang. The first failure is the cause; the others only follow from it."""

    cause: Failure | None = None
    follower: Failure | None = None
    """The first failure that may follow from another one."""
    failed_at: float | None = None
    """When the first failure of either kind was reported."""

    @property
    def first(self) -> Failure | None:
        """The cause, or what takes its place until a better one is known; None while nothing has failed."""
        return self.cause or self.follower

    def add(self, failure: Failure, at: float, *, follows: bool) -> None:
        """Note a failure that is the cause, if it is the first, unless it `follows` from another one."""
        if self.failed_at is None:
            self.failed_at = at
        if follows:
            self.follower = self.follower or failure
        elif self.cause is None:
            self.cause = failure

    def settle(self, at: float, timeout_s: float) -> None:
        """What may only follow from another failure is the cause, where no better one came within `timeout_s`."""
        if self.follower is not None and self.failed_at is not None and at >= self.failed_at + timeout_s:
            self.cause = self.follower


class GangPause(Struct, gc=False, kw_only=True):
    """The members of a gang pause, so that a larger one continues, or one on other agents, or later."""

    change: SeatChange
    """Why the gang ends, and from where the next one resumes."""
    asked_at: float
    paused: set[Rank] = set()
    """Members that have paused, with a snapshot in memory."""
    complete: bool = False
    """All have, or the checkpoint counts: the gang ends."""


class GangStop(Struct, gc=False):
    """How far the end of a gang is that the coordinator has decided."""

    advised_until: float | None = None
    """Once members were advised to stop, because the trial is pruned or paused: when they are stopped."""
    by: float | None = None
    """Once members must stop: when those that have not ended are given up, with their agents."""
    pause: GangPause | None = None
    """Since members were asked to pause."""

    @property
    def has_started(self) -> bool:
        """Members must stop, or were advised to because the trial is pruned or paused: none of them restarts."""
        return self.by is not None or self.advised_until is not None

    @property
    def continues(self) -> bool:
        """The gang ends because another one continues, on more agents or on others."""
        return self.pause is not None and self.pause.complete

    def pauses(self, at: float) -> bool:
        """Whether members may have paused, because they were asked to for another gang."""
        return self.pause is not None and at < self.pause.asked_at + timeouts.PAUSE_INTERVAL_S

    def postpone(self, seconds: float) -> None:
        """See `Gang.postpone`."""
        self.by = later(self.by, seconds)
        self.advised_until = later(self.advised_until, seconds)
        if self.pause is not None:
            self.pause.asked_at += seconds
