"""A member's position in its data: the callbacks keep it, and the feeds read it at the start of each pass. Pure.

A pass is one reading of the data. It is an epoch, unless `fit(steps_per_epoch=...)` cuts the data in another way. Each
call of `fit` is a stage: its epochs and passes count from 0, and its steps continue those of the stage before.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparktrain.training.data.fit_stages import Stages


class Position:
    """The position of one member, shared by its feeds and callbacks. Any thread may use it: threads read the feeds."""

    def __init__(self, rank_now: Callable[[], int] | None = None) -> None:
        """`rank_now` is the rank of this process at each moment, where it may change before the first step."""
        self.lock = threading.RLock()
        self.rank_now = rank_now
        self.feeds: list[Cursor] = []
        """The feeds that were made with this position, oldest first."""
        self.spec: object = None
        """Element spec of the data of the fit; before the first fit, that of the first feed."""
        self.order = 0
        """A number that is equal on members with the same order in their first feeds."""
        self.epoch = 0
        self.batch = 0
        """Steps of this member in the epoch, including those before a resume."""
        self.step = 0
        """Steps of this member in all epochs of all fits."""
        self.per_epoch: int | None = None
        """Steps of an epoch; None where Keras does not know them."""
        self.training = False
        """Whether `fit` reads its training data now: passes of other data do not count."""
        self.resumed = False
        """Whether this fit resumes from a checkpoint."""
        self.fit = 0
        """Calls of `fit` so far: the number of the stage, from 1."""
        self.start_step = 0
        """`step` at the start of this fit."""
        self.first: int | None = None
        """The first epoch of this fit; None before it."""
        self.offset = 0
        """Steps of this epoch before the resume; 0 in all epochs but the resumed one."""
        self.counted = 0
        """The same as callbacks have counted them: a step is one, whatever the size of the gang was."""
        self.logs: dict[str, float] = {}
        """The metrics of the newest epoch of this fit."""
        self.reported = -1
        """Step of the newest report; -1 before the first."""
        self.stopped = False
        """Whether the members have stopped on request."""
        self.cut = False
        """Whether this member ends the epoch where Keras would not: no reason for others to stop."""
        self.stages = Stages()
        self.warmup: tuple[object, float, int] | None = None
        """The optimizer of the warm-up, its final learning rate, and the first step."""
        self._base = 0
        self._resumed_count = 0
        self._ordered = False
        self._pass_end: int | None = None

    @property
    def at_pass_end(self) -> bool:
        """Whether the member has trained on every batch of the feed's pass; False without a feed."""
        return self._pass_end is not None and self.step >= self._pass_end

    @property
    def epoch_start(self) -> int:
        """`step` when this process has started the epoch."""
        return self._base

    @property
    def number(self) -> int:
        """The number of the next step in its epoch, from 0, for callbacks."""
        return self.counted + self.step - self._base

    @property
    def at_epoch_end(self) -> bool:
        """Whether the epoch has run all its steps, as far as is known before `on_epoch_end`."""
        return self.at_pass_end or (self.per_epoch is not None and self.batch >= self.per_epoch)

    def describe(self, spec: object, order: int) -> None:
        """Note the element spec and the order of a feed; the first of several feeds counts."""
        if self.spec is None:
            self.spec = spec
            self.order = order

    def reads(self, spec: object, ordered: bool = False) -> None:
        """Note the element spec of the data of the fit that starts, None where it is unknown.

        `ordered`: each epoch of it has the same batches in the same order.
        """
        self.spec = self.spec if spec is None else spec
        self._ordered = ordered

    def start_fit(self, per_epoch: int | None) -> None:
        """Start a call of `fit` with `per_epoch` steps in an epoch; None where Keras does not know them."""
        with self.lock:
            self.fit += 1
            self.start_step = self.step
            self.first = None
            self.offset = 0
            self.per_epoch = per_epoch
            self.resumed = False
            self.logs = {}
            self._pass_end = None

    def resume(
        self,
        epoch: int,
        batch: int,
        step: int,
        *,
        start_step: int = 0,
        first: int | None = 0,
        counted: int | None = None,
    ) -> None:
        """Resume in `epoch`, from 0, after `batch` of its steps, `step` in all. Call it after `start_fit`.

        `start_step` is `step` at the start of the fit, `first` its first epoch. `counted` is the `number` of the next
        step for callbacks, by default `batch`.
        """
        with self.lock:
            self.epoch = epoch
            self.batch = batch
            self.step = step
            self.resumed = True
            self._resumed_count = batch if counted is None else counted
            self.start_step = start_step
            self.first = first

    def start_epoch(self, epoch: int) -> None:
        """Start an epoch, at its first step, or after the finished steps of a resumed epoch."""
        with self.lock:
            self.first = epoch if self.first is None else self.first
            is_rest = self.resumed and epoch == self.epoch
            self.offset = self.batch if is_rest else 0
            self.counted = self._resumed_count if is_rest else 0
            self.epoch = epoch
            self.batch = self.offset
            self._base = self.step
            self.training = True

    def finish_step(self, last: int) -> None:
        """Note that step `last` and all before it are done; 0 is the first step after `start_epoch`.

        `last` may be beyond the end of the data where Keras runs several steps at a time.
        """
        with self.lock:
            steps = last + 1
            if self._pass_end is not None:
                steps = min(steps, self._pass_end - self._base)
            elif self.per_epoch is not None and not self.feeds:
                steps = min(steps, self.per_epoch)
            self.batch = self.offset + steps
            self.step = self._base + steps

    def leave_epoch(self) -> None:
        """Stop counting passes as training data until the next epoch starts."""
        with self.lock:
            self.training = False

    def passes(self) -> list[list[int]]:
        """For each feed: how many passes started before this fit trained on it, and how many in all."""
        with self.lock:
            return [cursor.passes() for cursor in self.feeds]

    def recall(self, passes: Sequence[Sequence[int]]) -> None:
        """Continue the counts that `passes` returned in an earlier process."""
        with self.lock:
            for cursor, (base, count) in zip(self.feeds, passes, strict=False):
                cursor.recall(base, count)

    def rows(self) -> list[list[int] | None]:
        """For each feed: its pass and how many rows of it the gang has taken; None for a feed that counts no rows."""
        with self.lock:
            return [cursor.rows() for cursor in self.feeds]

    def recall_rows(self, rows: Sequence[Sequence[int] | None]) -> None:
        """Continue where `rows` was in an earlier process, also where its gang had another size."""
        with self.lock:
            for cursor, feed_rows in zip(self.feeds, rows, strict=False):
                if feed_rows is not None:
                    cursor.recall_rows(*feed_rows)

    def divide(self, per_epoch: int, remaining: int, step: int) -> None:
        """After `step` fewer members divide the rest of the epoch: `remaining` steps; a whole one has `per_epoch`.

        From now on its finished steps count as a gang of this size would have made them.
        """
        with self.lock:
            self.per_epoch = per_epoch
            self.offset = per_epoch - remaining - (step - self._base)
            self.batch = self.offset + self.step - self._base
            self._pass_end = step + remaining

    def place_now(self, epoch: int, batch: int) -> tuple[int, int]:
        """The epoch and its finished steps after `batch` steps of `epoch`, in steps of this gang.

        So many steps are finished as leave the rest of the rows; an epoch with too few rows for a step is over.
        """
        with self.lock:
            feeds = [feed for feed in self.feeds if feed.steps == self.per_epoch]
            remaining = [feed.remaining_steps for feed in feeds if feed.remaining_steps is not None]
            if not batch or not remaining or self.per_epoch is None:
                return epoch, batch
            return (epoch, max(0, self.per_epoch - remaining[0])) if remaining[0] else (epoch + 1, 0)

    @property
    def fed(self) -> bool:
        """Whether this fit can continue in the middle of an epoch: it trains on a feed, or in the same order always."""
        return self._ordered or any(cursor.fit == self.fit for cursor in self.feeds)

    @property
    def ordered(self) -> bool:
        """Whether this fit trains on data that is no feed, and has the same order in each epoch."""
        return self._ordered

    def end_pass_after(self, step: int | None) -> None:
        """Note that the feed's pass ends after `step` steps in all; None: it has no end, or an unknown one."""
        with self.lock:
            self._pass_end = step


@dataclass(frozen=True, kw_only=True)
class PassPlace:
    """Where a pass starts."""

    number: int
    replayed: int
    """How many passes to replay before it."""
    skipped: int
    """How many of its steps to skip."""
    taken_rows: int = 0
    """How many rows or batches of it were taken by all members, where they are no steps of this gang."""

    def after(self, skipped: int) -> "PassPlace":
        """The start after `skipped` whole steps."""
        return replace(self, skipped=skipped, taken_rows=0)


class Cursor:
    """The passes of one feed. Any thread may use it."""

    def __init__(self, position: Position, steps: int | None, *, members: int = 1, endless: bool = False) -> None:
        """`members` take a batch each in a step."""
        self._position = position
        self._members = members
        self._remaining_steps: int | None = None
        self.steps = steps
        """Steps of a pass; None where they are unknown or endless."""
        self.fit = 0
        """The newest fit that has trained on this feed, from 1."""
        self._endless = endless
        self._passes_read = 0  # passes that this process has read or replayed
        self._count = 0  # passes started, including those of earlier processes
        self._base = 0
        self._recalled: int | None = None
        self._trained: tuple[int, int] | None = None
        self._loop_target: tuple[int, int] | None = None
        """In a user's loop that resumes: the pass that starts next, and its steps that were trained."""
        self._loop_pass = (0, 0)
        """In a user's loop: the newest pass, and the steps of it that the loop has trained."""
        self._loop_noted: tuple[int, int] | None = None
        """The same when the loop counted a step last."""
        with position.lock:
            position.feeds.append(self)

    def start_pass(self) -> tuple[int, int, int]:
        """Start a pass; returns its number, how many passes to replay before it, and how many of its steps to skip."""
        start = self.next_pass()
        return start.number, start.replayed, start.skipped

    def next_pass(self) -> PassPlace:
        """Start a pass.

        Replaying a pass advances the generators that shuffle as that pass would have. So pass number p has the same
        order whether this process has read the passes before it or an earlier one. Endless passes cannot be replayed.
        """
        with self._position.lock:
            training = self._position.training
            started = self._position.step
            number, skipped = self._target() if training else self._loop_target or (self._count, 0)
            number = self._passes_read if self._endless else max(number, self._passes_read)
            played = number - self._passes_read
            self._passes_read = number + 1
            self._count = number + 1
            if not training:
                self._loop_target = None
                self._loop_pass = (number, skipped)
            self._trained = (number, started - skipped) if training else None
            if training:
                self._position.end_pass_after(
                    None if self.steps is None else max(started, started - skipped + self.steps)
                )
            return PassPlace(number=number, replayed=played, skipped=skipped)

    @property
    def has_started(self) -> bool:
        """Whether a pass has started."""
        return self._count > 0

    def count_step(self) -> None:
        """A user's loop has trained on one more batch of the newest pass."""
        with self._position.lock:
            number, steps = self._loop_pass
            self._loop_pass = self._loop_noted = (number, steps + 1)

    def loop_place(self) -> list[int]:
        """Where a user's loop was when it counted a step last, for `continue_loop`.

        A pass with its last batch taken is not over: what the loop does after that is still to come.
        """
        with self._position.lock:
            return [*(self._loop_noted or (0, 0)), self._members]

    def continue_loop(self, number: int, steps: int, members: int) -> None:
        """Have the next pass of a user's loop be the rest of pass `number`, after `steps` steps of a gang of `members`.

        Where these are no whole number of steps of this gang, the last batches, fewer than members, come twice.
        """
        with self._position.lock:
            self._loop_target = self._loop_noted = self._loop_pass = (number, steps * members // self._members)

    def drop_pass(self, number: int) -> None:
        """Take back the start of pass `number`, the newest one, unless `fit` trains on it: the next one repeats it."""
        with self._position.lock:
            if self._trained is None and self._count == number + 1:
                self._count = self._passes_read = number

    @property
    def number(self) -> int:
        """The number of the newest pass; 0 before any."""
        return max(0, self._count - 1)

    def end_pass(self, number: int, steps: int) -> None:
        """Note that pass `number` has `steps` steps, including skipped ones; called before its last batch is read."""
        with self._position.lock:
            if self._trained is not None and self._trained[0] == number:
                self._position.end_pass_after(self._trained[1] + steps)

    def passes(self) -> list[int]:
        """How many passes started before the fit trained on this feed, and how many in all."""
        return [self._base if self.fit == self._position.fit else self._count, self._count]

    def recall(self, base: int, count: int) -> None:
        """Continue the counts that `passes` returned in an earlier process."""
        self._recalled = base
        self._count = max(count, self._count)

    def rows(self) -> list[int] | None:
        """The pass, and the rows or batches of it that the gang has taken; None where their number is unknown."""
        if self.steps is None or self._trained is None or self.fit != self._position.fit:
            return None
        number, first = self._trained
        return [number, (self._position.step - first) * self._members]

    def recall_rows(self, number: int, taken_rows: int) -> None:
        """Continue in pass `number` after what `rows` has returned in a gang that may have had another size.

        Where it is no whole number of steps of this gang, the last batches, fewer than members, come twice.
        """
        if self.steps is not None:
            self._remaining_steps = max(0, self.steps - taken_rows // self._members)

    @property
    def remaining_steps(self) -> int | None:
        """Steps that are left of the recalled pass; None where none was recalled."""
        return self._remaining_steps

    def _target(self) -> tuple[int, int]:
        position = self._position
        first = self.fit != position.fit
        self.fit = position.fit
        resumed = position.resumed and first
        if first:  # without counts of an earlier process, this one repeats the passes before any training
            self._base = self._recalled if resumed and self._recalled is not None else self._count
        if not resumed:
            return self._count, 0
        finished_steps = position.step - position.start_step
        if self._endless or (self.steps is None and position.per_epoch is not None):
            return self._base, finished_steps
        if self.steps is not None and position.per_epoch not in (None, self.steps):
            passes, skipped = divmod(finished_steps, self.steps)
            return self._base + passes, skipped
        return self._base + position.epoch - (position.first or 0), position.batch
