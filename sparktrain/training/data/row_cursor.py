"""The passes of a feed with a known number of rows: a gang of any size can continue from each position. Pure.

A position is the number of rows, or of batches, that all members have taken. So the members of another gang, or those
that are left of this one, divide exactly the rest: none is lost, and none comes twice.
"""

from dataclasses import replace

from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.position import Cursor, PassPlace, Position
from sparktrain.training.data.row_order import RowShare


class RowCursor(Cursor):
    """The passes of a feed of rows with known numbers: it resumes after the rows that a gang of any size has taken."""

    def __init__(self, position: Position, share: RowShare, *, members: int = 1) -> None:
        """See base class; `members` matter to loops of users alone."""
        super().__init__(position, share.steps, members=members)
        self._share = share
        self._at: tuple[int, int, int] | None = None
        """The pass in training, the rows taken before this process read it, and the step at that time."""
        self._resumes: tuple[int, int] | None = None
        """The recalled pass, and its rows that were taken."""
        self._is_divided_again = False
        """Whether `_resumes` is for the pass that this process trains on."""

    def next_pass(self) -> PassPlace:
        """See base class."""
        with self._position.lock:
            started = self._position.step
            training = self._position.training
            resuming = self._position.resumed and self.fit != self._position.fit
            resumes = self._resumes if training and (resuming or self._is_divided_again) else None
            passes_read = self._passes_read
            start = super().next_pass()
            if not training:
                return start
            number, skipped = start.number, start.skipped
            taken_rows = 0
            self._resumes = None
            self._remaining_steps = None
            self._is_divided_again = False
            if resumes is not None:
                number, taken_rows = resumes
                skipped = 0
                remaining_steps = replace(self._share, taken_rows=taken_rows).steps
                self._count = self._passes_read = number + 1
                self._trained = number, started - (self._share.steps - remaining_steps)
                self._position.end_pass_after(started + remaining_steps)
            self._at = number, self._share.taken_after(skipped) if skipped else taken_rows, started
            replayed = max(0, number - passes_read)
            return PassPlace(number=number, replayed=replayed, skipped=skipped, taken_rows=taken_rows)

    def rows(self) -> list[int] | None:
        """See base class."""
        return self._rows_at(self._position.step)

    def _rows_at(self, step: int) -> list[int] | None:
        if self._at is None or self.fit != self._position.fit:
            return None
        number, taken_rows, started = self._at
        taken_rows = replace(self._share, taken_rows=taken_rows).taken_after(step - started)
        # A gang of another size could take what this one drops: it must not, once the pass is over.
        return [number, taken_rows if replace(self._share, taken_rows=taken_rows).steps else self._share.rows]

    def recall_rows(self, number: int, taken_rows: int) -> None:
        """See base class. A pass without a further step is followed by the next one."""
        self._remaining_steps = replace(self._share, taken_rows=taken_rows).steps
        self._resumes = (number, taken_rows) if self._remaining_steps else (number + 1, 0)

    def divide(self, share: BatchShare, step: int, *, trains: bool) -> int:
        """Divide what is left of the pass after `step` among the members of `share`; the steps that this takes.

        Call it while the feed of the old share is not read any more; the next pass is the rest of the present one. With
        `trains` a step follows in any case, in the pass after this one where that is over: not where `can_divide` is
        false.
        """
        with self._position.lock:
            number, taken_rows = self._place_after(step)
            starts_pass = trains and taken_rows == self._share.rows
            self._at = number, taken_rows, step
            self._share = replace(self._share, share=share)
            self._members = share.size if self._members > 1 else 1
            self.steps = self._share.steps
            remaining_steps = self.steps if starts_pass else replace(self._share, taken_rows=taken_rows).steps
            if remaining_steps and not starts_pass:
                self._resumes = (number, taken_rows)
                self._is_divided_again = True
            self._position.divide(self.steps, remaining_steps, step)
            return remaining_steps

    def can_divide(self, share: BatchShare, step: int) -> bool:
        """Whether the next step after `step` can be one of the members of `share`.

        Not where the present members have a step left in the pass, and its rows are too few for one of more members.
        """
        with self._position.lock:
            _, taken_rows = self._place_after(step)
            return taken_rows == self._share.rows or replace(self._share, share=share, taken_rows=taken_rows).steps > 0

    def _place_after(self, step: int) -> list[int]:
        place = self._rows_at(step)
        assert place is not None, "a fit trains on the feed"
        return place


class BatchCursor(RowCursor):
    """The passes of a feed with a known number of batches, a row each for `RowShare`."""

    def __init__(self, position: Position, share: BatchShare, batches: int) -> None:
        """Raises SpecError if there are fewer batches than members."""
        share.steps(batches)
        super().__init__(position, RowShare(share, batches, 1), members=share.size)

    def next_pass(self) -> PassPlace:
        """See base class. Batches that make up whole steps are steps to skip."""
        start = super().next_pass()
        skipped, remainder = divmod(start.taken_rows, self._share.share.size)
        return start if remainder else start.after(start.skipped + skipped)

    def recall_rows(self, number: int, taken_rows: int) -> None:
        """See base class.

        Where the last step is filled from the start of the epoch, its steps are those of whole passes: the last batches
        that were taken, fewer than members, come twice.
        """
        share = self._share.share
        is_exact = share.uneven is Uneven.DROP
        super().recall_rows(number, taken_rows if is_exact else taken_rows - taken_rows % share.size)
