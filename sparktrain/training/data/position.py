"""Where a member is in its data: kept by the callbacks, read by the feeds whenever a pass over the data begins. Pure.

A pass is one reading of the data. It is an epoch, unless `fit(steps_per_epoch=...)` cuts the data in another way. Each
call of `fit` is a stage: its epochs and passes begin anew, and its steps go on from those of the stage before.
"""

import threading
from collections.abc import Sequence

from sparktrain.training.keras.fit_stages import Stages


class Position:
    """Where training is, shared by a member's feeds and callbacks. Any thread, for feeds are read by threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.feeds: list[Cursor] = []
        """Those that were made with this position, oldest first."""
        self.spec: object = None
        """Element spec of what the fit reads; before the first fit, that of the first feed."""
        self.order = 0
        """A number that is equal on members whose first feeds are in the same order."""
        self.epoch = 0
        self.batch = 0
        """Steps of this member in the epoch; those before a resume count too."""
        self.step = 0
        """Steps of this member in all epochs of all fits."""
        self.per_epoch: int | None = None
        """Steps of an epoch; None where Keras does not know."""
        self.training = False
        """Whether `fit` is reading its training data: the passes of other data do not count."""
        self.resumed = False
        """Whether this fit goes on from a checkpoint."""
        self.fit = 0
        """Calls of `fit` so far: the number of the stage, from 1."""
        self.began = 0
        """`step` where this fit began."""
        self.first: int | None = None
        """The epoch in which this fit began; None until it has begun one."""
        self.offset = 0
        """Steps of this epoch that were run before the resume; 0 in all epochs but the resumed one."""
        self.reported = -1
        """Step of the newest report; -1 before the first."""
        self.asked = False
        """Whether the members have stopped because one of them was asked to."""
        self.stages = Stages()
        self.warming: tuple[object, float, int] | None = None
        """The optimizer whose learning rate rises, to what, and the step from which on."""
        self._base = 0
        self._pass_end: int | None = None

    @property
    def at_pass_end(self) -> bool:
        """Whether every batch of the feed's pass has been trained on; False where there is no feed."""
        return self._pass_end is not None and self.step >= self._pass_end

    @property
    def at_epoch_end(self) -> bool:
        """Whether the epoch has run all its steps, as far as can be known before `on_epoch_end`."""
        return self.at_pass_end or (self.per_epoch is not None and self.batch >= self.per_epoch)

    def describe(self, spec: object, order: int) -> None:
        """What a feed gives, and in what order; of several feeds the first counts."""
        if self.spec is None:
            self.spec, self.order = spec, order

    def reads(self, spec: object) -> None:
        """What the fit that begins reads."""
        self.spec = spec

    def begin_fit(self, per_epoch: int | None) -> None:
        """A call of `fit` begins, with so many steps in an epoch; None where Keras does not know."""
        with self.lock:
            self.fit += 1
            self.began, self.first, self.offset = self.step, None, 0
            self.per_epoch, self.resumed, self._pass_end = per_epoch, False, None

    def resume(self, epoch: int, batch: int, step: int, *, began: int = 0, first: int | None = 0) -> None:
        """Go on in `epoch`, from 0, after `batch` of its steps, `step` in all. After `begin_fit`.

        `began` is the step in which the fit began, `first` its first epoch.
        """
        with self.lock:
            self.epoch, self.batch, self.step, self.resumed = epoch, batch, step, True
            self.began, self.first = began, first

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins: its first step comes next, or the one after the steps that a resumed epoch has."""
        with self.lock:
            self.first = epoch if self.first is None else self.first
            self.offset = self.batch if self.resumed and epoch == self.epoch else 0
            self.epoch, self.batch, self._base, self.training = epoch, self.offset, self.step, True

    def ran(self, last: int) -> None:
        """Step `last` is done, and all before it; from 0 where the epoch, or what is left of it, begins.

        `last` may lie beyond the end of the data where Keras runs several steps at a time.
        """
        with self.lock:
            steps = last + 1
            if self._pass_end is not None:
                steps = min(steps, self._pass_end - self._base)
            elif self.per_epoch is not None and not self.feeds:
                steps = min(steps, self.per_epoch)
            self.batch, self.step = self.offset + steps, self._base + steps

    def rest(self) -> None:
        """What is read from now on is no training data, until the next epoch begins."""
        with self.lock:
            self.training = False

    def passes(self) -> list[list[int]]:
        """By feed: how many passes were begun before this fit trained on it, and how many in all."""
        with self.lock:
            return [cursor.passes() for cursor in self.feeds]

    def recall(self, passes: Sequence[Sequence[int]]) -> None:
        """Count passes on from those that `passes` told in a process that is gone."""
        with self.lock:
            for cursor, (base, count) in zip(self.feeds, passes, strict=False):
                cursor.recall(base, count)

    @property
    def fed(self) -> bool:
        """Whether a feed is what this fit trains on."""
        return any(cursor.fit == self.fit for cursor in self.feeds)

    def pass_ends(self, step: int | None) -> None:
        """The feed's pass is over after `step` steps of all; None: it has no end, or none that is known."""
        with self.lock:
            self._pass_end = step


class Cursor:
    """The passes of one feed. Any thread."""

    def __init__(self, position: Position, steps: int | None, *, endless: bool = False) -> None:
        self._position = position
        self.steps = steps
        """Steps of a pass; None where that is not known, or where a pass has no end."""
        self.fit = 0
        """The newest fit that has trained on this feed, from 1."""
        self._endless = endless
        self._made = 0  # passes that this process has read or played
        self._count = 0  # passes begun, those of processes that are gone among them
        self._base = 0
        self._recalled: int | None = None
        self._trained: tuple[int, int] | None = None
        with position.lock:
            position.feeds.append(self)

    def begin(self) -> tuple[int, int, int]:
        """A pass begins: its number, how many passes are to be played before it, and how many steps of it to skip.

        Playing a pass advances the generators that shuffle as that pass would have. So pass number p is in the same
        order whether the passes before it were read by this process or by one that is gone. Passes without an end
        cannot be played.
        """
        with self._position.lock:
            training, started = self._position.training, self._position.step
            number, skipped = self._target() if training else (self._count, 0)
            number = self._made if self._endless else max(number, self._made)
            played, self._made = number - self._made, number + 1
            self._count = number + 1
            self._trained = (number, started - skipped) if training else None
            if training:
                self._position.pass_ends(None if self.steps is None else max(started, started - skipped + self.steps))
            return number, played, skipped

    @property
    def number(self) -> int:
        """Of the pass that was begun last; 0 before any."""
        return max(0, self._count - 1)

    def end(self, number: int, steps: int) -> None:
        """Pass `number` turns out to have `steps` steps, the skipped ones among them. Before the last one is read."""
        with self._position.lock:
            if self._trained is not None and self._trained[0] == number:
                self._position.pass_ends(self._trained[1] + steps)

    def passes(self) -> list[int]:
        """How many passes were begun before the fit trained on this feed, and how many in all."""
        return [self._base if self.fit == self._position.fit else self._count, self._count]

    def recall(self, base: int, count: int) -> None:
        """Go on from what `passes` told in a process that is gone."""
        self._recalled, self._count = base, max(count, self._count)

    def _target(self) -> tuple[int, int]:
        position = self._position
        first, self.fit = self.fit != position.fit, position.fit
        resumed = position.resumed and first
        if first:  # without a word of a former process: passes before any training are made again by this one
            self._base = self._recalled if resumed and self._recalled is not None else self._count
        if not resumed:
            return self._count, 0
        done = position.step - position.began
        if self._endless or (self.steps is None and position.per_epoch is not None):
            return self._base, done
        if self.steps is not None and position.per_epoch not in (None, self.steps):
            passes, skipped = divmod(done, self.steps)
            return self._base + passes, skipped
        return self._base + position.epoch - (position.first or 0), position.batch
