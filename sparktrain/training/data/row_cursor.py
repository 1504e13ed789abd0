"""The passes of a feed of rows: a position is a number of rows, which a gang of any size can resume from. Pure."""

from dataclasses import replace

from sparktrain.training.data.position import Cursor, Position
from sparktrain.training.data.row_order import RowShare


class RowCursor(Cursor):
    """The passes of a feed of rows with known numbers: it resumes after the rows that a gang of any size has taken."""

    def __init__(self, position: Position, share: RowShare) -> None:
        super().__init__(position, share.steps)
        self._share = share
        self._at: tuple[int, int, int] | None = None
        """The pass in training, the rows taken before this process read it, and the step at that time."""
        self._resumes: tuple[int, int] | None = None
        """The recalled pass, and its rows that were taken."""

    def start_pass(self) -> tuple[int, int, int]:
        """Start a pass; returns its number, its rows that were taken before, and how many steps after them to skip."""
        with self._position.lock:
            started = self._position.step
            training = self._position.training
            resumes = self._resumes if training and self._position.resumed and self.fit != self._position.fit else None
            number, _, skipped = super().start_pass()
            if not training:
                return number, 0, skipped
            taken_rows = 0
            self._resumes = None
            self._remaining_steps = None
            if resumes is not None:
                number, taken_rows = resumes
                skipped = 0
                remaining_steps = replace(self._share, taken_rows=taken_rows).steps
                self._count = self._passes_read = number + 1
                self._trained = number, started - (self._share.steps - remaining_steps)
                self._position.end_pass_after(started + remaining_steps)
            self._at = number, self._share.taken_after(skipped) if skipped else taken_rows, started
            return number, taken_rows, skipped

    def rows(self) -> list[int] | None:
        """See base class."""
        if self._at is None or self.fit != self._position.fit:
            return None
        number, taken_rows, started = self._at
        taken_rows = replace(self._share, taken_rows=taken_rows).taken_after(self._position.step - started)
        # A gang of another size could take what this one drops: it must not, once the pass is over.
        return [number, taken_rows if replace(self._share, taken_rows=taken_rows).steps else self._share.rows]

    def recall_rows(self, number: int, taken_rows: int) -> None:
        """See base class. A pass without a further step is followed by the next one."""
        self._remaining_steps = replace(self._share, taken_rows=taken_rows).steps
        self._resumes = (number, taken_rows) if self._remaining_steps else (number + 1, 0)
