"""The times of a member's newest steps in a file that grows while it trains, so that others can read them meanwhile."""

from pathlib import Path

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.rundir.step_file import encoded
from sparktrain.training.collectives.step_notes import STEPS, StepNotes

FRAME_STEPS = 64
"""Steps in a part of the file, but for the last one, which has all that are noted."""
SHORTEST_S = 5.0
"""The shortest time between two parts; it grows with the age of the log, so that the file stays small."""
OF_AGE = 0.002
"""The time between two parts of an old log, as a share of its age."""


class StepLog:
    """The file of one member. For the thread that trains. A disk that is full ends the log, and nothing else."""

    def __init__(self, path: Path, notes: StepNotes, clock: Clock | None = None) -> None:
        self._path = path
        self._notes = notes
        self._clock = clock or SystemClock()
        self._started_s = self._written_s = self._clock.now()
        self._every = 1
        self._failed = False

    def stepped(self, number: int) -> None:
        """This member has noted its step `number`: write the newest steps, if it is time.

        Members write after multiples of a power of two, so that the parts of all end with the same steps, although
        their clocks differ.
        """
        if number % self._every:
            return
        now = self._clock.now()
        wanted_s = max(SHORTEST_S, OF_AGE * (now - self._started_s))
        since_s = now - self._written_s
        if since_s < wanted_s / 2:
            self._every *= 2
            return
        if since_s > 2 * wanted_s and self._every > 1:
            self._every //= 2
        self._written_s = now
        self._append(FRAME_STEPS)

    def close(self) -> None:
        """The member makes no more steps: write all that are noted."""
        self._append(STEPS)

    def _append(self, steps: int) -> None:
        content = None if self._failed else self._notes.file(steps)
        if content is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(encoded(content))
        except OSError:
            self._failed = True
