"""Where a member is in its data: kept by the callbacks, read by the feeds whenever a pass over the data begins. Pure.

A pass is one reading of the data. It is an epoch, unless `fit(steps_per_epoch=...)` cuts the data in another way.
"""

import threading


class Position:
    """Where training is, shared by a member's feeds and callbacks. Any thread, for feeds are read by threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.feeds: list[Cursor] = []
        """Those that were made with this position, oldest first."""
        self.spec: object = None
        """Element spec of the first feed."""
        self.order = 0
        """A number that is equal on members whose first feeds are in the same order."""
        self.epoch = 0
        self.batch = 0
        """Steps of this member in the epoch; those before a resume count too."""
        self.step = 0
        """Steps of this member in all epochs."""
        self.per_epoch: int | None = None
        """Steps of an epoch; None where Keras does not know."""
        self.training = False
        """Whether `fit` is reading its training data: the passes of other data do not count."""
        self.resumed = False
        """Whether this fit goes on from a checkpoint."""
        self.fit = 0
        """Calls of `fit` so far."""
        self.offset = 0
        """Steps of this epoch that were run before the resume; 0 in all epochs but the resumed one."""
        self.opened = False
        """Whether a checkpoint to go on from has been looked for: that is done once."""
        self._pending = False
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

    def begin_fit(self, per_epoch: int | None) -> None:
        """A call of `fit` begins, with so many steps in an epoch; None where Keras does not know."""
        with self.lock:
            self.fit += 1
            self.per_epoch, self.resumed, self._pass_end = per_epoch, self._pending, None

    def resume(self, epoch: int, batch: int, step: int) -> None:
        """Go on in `epoch`, from 0, after `batch` of its steps, `step` in all. After `begin_fit`."""
        with self.lock:
            self.epoch, self.batch, self.step, self.resumed, self._pending = epoch, batch, step, True, True

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins: its first step comes next, or the one after the steps that a resumed epoch has."""
        with self.lock:
            self._pending = False  # a fit that ends before the epoch to go on in leaves the resume to the next one
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
        self._endless = endless
        self._begun = 0
        self._base: int | None = None
        self._fit = 0
        self._trained: tuple[int, int] | None = None
        with position.lock:
            position.feeds.append(self)

    def begin(self) -> tuple[int, int, int]:
        """A pass begins: its number, how many passes are to be played before it, and how many steps of it to skip.

        Playing a pass advances the generators that shuffle as that pass would have. So pass number p is in the same
        order whether the passes before it were read by this process or by one that is gone.
        """
        with self._position.lock:
            training, started = self._position.training, self._position.step
            number, skipped = self._target() if training else (self._begun, 0)
            played, self._begun = number - self._begun, number + 1
            self._trained = (number, started - skipped) if training else None
            if training:
                self._position.pass_ends(None if self.steps is None else max(started, started - skipped + self.steps))
            return number, played, skipped

    def end(self, number: int, steps: int) -> None:
        """Pass `number` turns out to have `steps` steps, the skipped ones among them. Before the last one is read."""
        with self._position.lock:
            if self._trained is not None and self._trained[0] == number:
                self._position.pass_ends(self._trained[1] + steps)

    def _target(self) -> tuple[int, int]:
        position = self._position
        resumed, self._fit = position.resumed and self._fit != position.fit, position.fit
        if self._base is None:
            self._base = self._begun  # passes before any training: a process that resumes makes them again
        if self._endless or (self.steps is None and position.per_epoch is not None):
            return self._begun, position.step if resumed else 0
        if self.steps is not None and position.per_epoch not in (None, self.steps):
            passes, skipped = divmod(position.step, self.steps) if resumed else (0, 0)
            return max(self._begun, self._base + passes), skipped
        return max(self._begun, self._base + position.epoch), position.batch if resumed else 0
