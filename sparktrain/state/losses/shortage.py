"""Since when a run has fewer agents than it needs. Pure."""

from sparktrain.state.moments import later, since


class Shortage:
    """Times are those of the coordinator's clock, None where there are enough agents."""

    def __init__(self, full_size: int, least: int, at: float) -> None:
        """A whole gang needs `full_size` agents, the smallest one `least`; at `at` there is none."""
        self._full_size = full_size
        self._least = least
        self.of_whole_since: float | None = at
        """Since when there are fewer agents than a whole gang needs."""
        self.of_least_since: float | None = at
        """Since when there are fewer agents than the smallest gang needs."""

    def count(self, usable: int, at: float) -> None:
        """`usable` agents can get members."""
        self.of_whole_since = since(self.of_whole_since, usable < self._full_size, at)
        self.of_least_since = since(self.of_least_since, usable < self._least, at)

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`: the absence of agents in that time does not count."""
        self.of_whole_since = later(self.of_whole_since, seconds)
        self.of_least_since = later(self.of_least_since, seconds)
