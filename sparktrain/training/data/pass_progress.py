"""The passes of a loop that the user writes: which one it reads, how far it is, and how a restart continues it. Pure.

`fit` of Keras counts its steps by callbacks, and a `RowCursor` has its passes. A loop of the user takes batches alone:
each one that it has taken counts as trained, and a checkpoint that the loop saves has the count.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from sparktrain.config.param_values import shown
from sparktrain.errors import UserError
from sparktrain.training.data.assignment import BatchShare
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_cursor import RowCursor
from sparktrain.training.data.row_order import RowShare

_EPOCH = "epoch"
_ROWS = "rows"
_SOURCE = "source"
_OPEN = "open"


@dataclass(frozen=True)
class PassStart:
    """Where an iteration starts to read."""

    number: int
    """Of the pass, from 0."""
    share: RowShare
    """Of the rows that the gang has not taken."""
    skipped: int
    """Steps of the share that were trained before."""


class PassProgress:
    """The passes of one feed. One thread uses it."""

    def __init__(self, share: RowShare, position: Position, source: Mapping[str, Any]) -> None:
        """`source` identifies data and order, in numbers and strings: a state of another source is rejected."""
        self._share = share
        self._source = dict(source)
        self._position = position
        self.cursor = RowCursor(position, share)
        """The passes of a `fit`."""
        self._next = 0
        self._taken_rows = 0
        """Rows that the gang took of the next pass before this process."""
        self._open: int | None = None
        """The pass that an earlier process has read to its last batch, and not ended."""
        self._current: PassStart | None = None
        self._steps = 0
        """Steps that the loop took in the current pass."""

    def divided(self, share: BatchShare) -> "PassProgress":
        """The same passes of a `fit` for another share of their rows; `cursor` has divided them."""
        progress = copy(self)
        progress._share = replace(self._share, share=share)
        return progress

    @property
    def steps(self) -> int:
        """Of a whole pass, equal on all members."""
        return self._share.steps

    @property
    def epoch(self) -> int:
        """The number of the pass that comes next, or that is not over, from 0."""
        return self._place()[0] if self._open is None else self._open

    @property
    def is_open(self) -> bool:
        """Whether the loop reads a pass now."""
        return self._current is not None

    def start(self) -> PassStart:
        """Start a pass, or the rest of one that an earlier process has read a part of."""
        share = self._present_share()
        if self._position.training:
            place = self.cursor.next_pass()
            return PassStart(place.number, replace(share, taken_rows=place.taken_rows), place.skipped)
        if self._open is not None:
            number = self._open
            self._open = None
            return PassStart(number, share, share.steps)
        started = PassStart(self._next, replace(share, taken_rows=self._taken_rows), 0)
        self._current = started
        self._steps = 0
        self._next += 1
        self._taken_rows = 0
        return started

    def take(self, started: PassStart) -> None:
        """Note that the loop takes the next batch of this pass."""
        if started is self._current:
            self._steps += 1

    def end(self, started: PassStart) -> None:
        """Note that the loop reads no more of this pass."""
        if started is self._current:
            self._current = None

    def state(self) -> dict[str, Any]:
        """The position for a checkpoint: `load` continues from it in a gang of any size."""
        number, taken_rows = self._place()
        return {_EPOCH: number, _ROWS: taken_rows, _SOURCE: dict(self._source)}

    def open_state(self) -> dict[str, Any]:
        """As `state`, for a process that takes the place of this one in the middle of its loop.

        A pass is not over before its iteration is: what the loop does after the last batch is still to come.
        """
        state = self.state()
        started = self._current
        return state if started is None or state[_EPOCH] == started.number else {**state, _OPEN: started.number}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`. Raises UserError, with nothing changed, for one that `state` has not returned."""
        counts = [state.get(_EPOCH), state.get(_ROWS)]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise UserError(f"a position in data was expected, not {shown(state)}: pass what state_dict() returned")
        if (source := state.get(_SOURCE)) != self._source:
            raise UserError(
                f"the position is one in {shown(source)}, and the data is {shown(self._source)}: pass the same data, "
                "in the same order, or start with another checkpoint"
            )
        self._open = state.get(_OPEN)
        self._next = state[_EPOCH]
        self._taken_rows = state[_ROWS]
        self._current = None

    def _present_share(self) -> RowShare:
        """That of the rank which this process has now: one that waits for a place gets its rank with that."""
        rank_now = self._position.rank_now
        return (
            self._share if rank_now is None else replace(self._share, share=replace(self._share.share, rank=rank_now()))
        )

    def _place(self) -> tuple[int, int]:
        started = self._current
        if started is None:
            return self._next, self._taken_rows
        taken_rows = started.share.taken_after(self._steps)
        # A gang of another size could take what this one drops: it must not, once the pass is over.
        is_over = self._steps >= started.share.steps
        return (started.number + 1, 0) if is_over else (started.number, taken_rows)
