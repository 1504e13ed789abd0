"""When an agent of this machine restarts after its process was lost. Pure."""

from dataclasses import dataclass, field

SHORT_LIFE_S = 10.0
"""An agent that is lost sooner had a short life: perhaps it cannot run here."""
MOST_SHORT_LIVES = 8
"""Short lives in a row, of one slot, after which its batch is given up: about 16 s with the pauses between them."""
FIRST_PAUSE_S = 0.25
"""Before the second restart after a short life, and twice as long before each later one; the first has no pause."""


@dataclass
class _Life:
    started_at: float = 0.0
    short_lives: int = 0
    due: float | None = None


@dataclass
class Restarts:
    """Schedules the starts of the agents of one batch. All methods belong to one thread."""

    most_short_lives: int = MOST_SHORT_LIVES
    _lives: dict[int, _Life] = field(default_factory=dict)

    def started(self, slot: int, now: float) -> None:
        """Note that the agent of `slot` has started."""
        life = self._lives.setdefault(slot, _Life())
        life.started_at = now
        life.due = None

    def lost(self, slot: int, now: float) -> bool:
        """Note that the agent of `slot` lost its process; returns whether it restarts."""
        life = self._lives[slot]
        life.short_lives = life.short_lives + 1 if now - life.started_at < SHORT_LIFE_S else 1
        if life.short_lives >= self.most_short_lives:
            return False
        life.due = now + (FIRST_PAUSE_S * 2.0 ** (life.short_lives - 2) if life.short_lives > 1 else 0.0)
        return True

    def due(self, now: float) -> list[int]:
        """The slots in which an agent starts now."""
        return sorted(slot for slot, life in self._lives.items() if life.due is not None and life.due <= now)

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next start; None when none is pending."""
        pending = [life.due for life in self._lives.values() if life.due is not None]
        return max(0.0, min(pending) - now) if pending else None
