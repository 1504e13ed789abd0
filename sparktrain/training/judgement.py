"""How long `ctx.should_stop()` waits for what the rules of the run make of the newest report.

Without a wait, a loop that looks right after its report would train a whole step more before it sees the decision.
"""

from collections.abc import Callable

from sparktrain.base.clock import Clock
from sparktrain.training.agent_pipe import Wire

LEAST_S = 0.02
"""After a shorter step there is no wait: its report travels with later ones."""
SHARE = 0.25
"""The longest wait, as a share of the time since the report before."""
MOST_S = 1.0


class Judgement:
    """The wait for the decision about the newest report of a member. Any thread may call it."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock
        self._reported_at = clock.now()
        self._awaited: int | None = None
        """The step of the newest report, as long as no call of `stop` has waited for it."""
        self._until = 0.0
        self.agreed: Callable[[], bool] | None = None
        """Whether all members of the gang stop, where they agree on that; None: each decides for itself."""

    def reported(self, step: int) -> bool:
        """The member is about to report `step`; returns whether rules judge the report, so that it must not wait."""
        now = self._clock.now()
        took = now - self._reported_at
        self._reported_at = now
        judged = took >= LEAST_S and self._wire.judged(step, 0.0) is not None
        self._awaited = step if judged else None
        self._until = now + min(MOST_S, SHARE * took)
        return judged

    def stop(self) -> bool:
        """Whether the member should stop: what all have agreed on, or as `asked`."""
        return self.asked() if self.agreed is None else self.agreed()

    def asked(self) -> bool:
        """Whether the run asks the member to stop. The first call after a report blocks until that is judged."""
        step = self._awaited
        self._awaited = None
        if step is not None:
            self._wire.judged(step, max(0.0, self._until - self._clock.now()))
        return self._wire.stop_advised()
