"""The agents that are kept free until a whole gang can start. Pure.

Only one run at a time has a reservation: two that each had some of the agents would wait for each other. Some gangs
can never form, such as beside a trial of days that has the agents; so a reservation that gets no agent for a while
is given up for as long, and the next one lasts twice as long. A gang that can form thus does so at last, and one that
cannot costs the others at most half of what it would hold.
"""

from msgspec import Struct

from sparktrain.base.ids import RunId

FIRST_HOLD_S = 30.0
"""How long the first reservation of a gang lasts after its newest agent."""


class Reservation(Struct, gc=False):
    """Which run may keep agents free, and until when."""

    run: RunId | None = None
    agents: int = 0
    """How many it had when it got the newest one."""
    until: float = 0.0
    barred: dict[RunId, float] = {}
    """Runs that have given up a reservation, and until when they get no other one."""
    hold_s: dict[RunId, float] = {}
    """How long the next one of each of them lasts."""

    def may_hold(self, run: RunId, at: float) -> bool:
        """Whether agents may be kept free for `run`."""
        return self.run == run or (self.run is None and at >= self.barred.get(run, at))

    def hold(self, run: RunId, agents: int, at: float) -> None:
        """`agents` are there for the gang of `run`, and it needs more."""
        if self.run == run and agents <= self.agents:
            return
        self.run = run
        self.agents = agents
        self.until = at + self.hold_s.get(run, FIRST_HOLD_S)

    def formed(self, run: RunId) -> None:
        """The gang of `run` has its agents, or needs none."""
        if self.run == run:
            self.run = None
        self.hold_s.pop(run, None)
        self.barred.pop(run, None)

    def expire(self, at: float) -> None:
        """Give the reservation up if it has been of no use."""
        if self.run is None or at < self.until:
            return
        lasted = self.hold_s.get(self.run, FIRST_HOLD_S)
        self.hold_s[self.run] = 2 * lasted
        self.barred[self.run] = at + lasted
        self.run = None

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`."""
        self.until += seconds
        self.barred = {run: until + seconds for run, until in self.barred.items()}
