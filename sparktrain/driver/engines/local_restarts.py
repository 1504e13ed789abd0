"""When an agent of this machine starts again whose process was lost. Pure."""

from dataclasses import dataclass, field

SHORT_LIFE_S = 10.0
"""An agent that is lost sooner counts as one that cannot run here."""
MOST_SHORT_LIVES = 8
"""In a row, of one slot; then its batch is given up. They take about 16 s with the pauses between them."""
FIRST_PAUSE_S = 0.25
"""Before the second start after a short life; twice as long each time. The first one is at once."""


@dataclass
class _Life:
    started_at: float = 0.0
    short_lives: int = 0
    due: float | None = None


@dataclass
class Restarts:
    """The starts of the agents of one batch. All methods belong to one thread."""

    most_short_lives: int = MOST_SHORT_LIVES
    _lives: dict[int, _Life] = field(default_factory=dict)

    def started(self, slot: int, now: float) -> None:
        """The agent of `slot` is started."""
        life = self._lives.setdefault(slot, _Life())
        life.started_at, life.due = now, None

    def lost(self, slot: int, now: float) -> bool:
        """The process of the agent of `slot` is lost; whether it starts again."""
        life = self._lives[slot]
        life.short_lives = life.short_lives + 1 if now - life.started_at < SHORT_LIFE_S else 1
        if life.short_lives >= self.most_short_lives:
            return False
        life.due = now + (FIRST_PAUSE_S * 2.0 ** (life.short_lives - 2) if life.short_lives > 1 else 0.0)
        return True

    def due(self, now: float) -> list[int]:
        """The slots whose agents start now."""
        return sorted(slot for slot, life in self._lives.items() if life.due is not None and life.due <= now)

    def wait_s(self, now: float) -> float | None:
        """Until the next start; None when none is pending."""
        pending = [life.due for life in self._lives.values() if life.due is not None]
        return max(0.0, min(pending) - now) if pending else None
