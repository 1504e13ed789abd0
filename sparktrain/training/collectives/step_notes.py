"""When a member of a gang has ended its steps, and has been in collectives, in buffers of fixed size.

The thread that trains notes two numbers for each collective, and three for each step: no lock, no allocation, no
message. What goes to the agent with the step that it reports now and then is computed at that moment.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.base import clock
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.rundir.newest_step import newest_step
from sparktrain.rundir.step_file import StepFile, encoded
from sparktrain.state.gangs.step_times import LOOKED_STEPS, StepTimes

FRAME_STEPS = 64
"""Steps in a part of the file, but for the last one, which has all that are noted."""
SHORTEST_S = 5.0
"""The shortest time between two parts; it grows with the age of the log, so that the file stays small."""
OF_AGE = 0.002
"""The time between two parts of an old log, as a share of its age."""
CALLS = 1024
"""Collectives in the buffer."""
STEPS = 256
"""Steps in the buffer."""
_LEFT_OUT = LOOKED_STEPS // 5
"""Steps that count neither of the shortest nor of the longest ones: validation, checkpoints and pauses are in these."""

Table = np.ndarray[Any, np.dtype[np.int64]]


def _no_calls() -> Table:
    return np.zeros((0, 2), np.int64)


class StepNotes:
    """The notes of one member. The thread that trains writes; times are nanoseconds of the monotonic clock."""

    def __init__(self, now_ns: Callable[[], int] = clock.now_ns) -> None:
        self.now_ns = now_ns
        self.traced: Callable[[], Table] = _no_calls
        """When this member entered and left collectives of traced functions, in any order. Takes 0.1 ms."""
        self.traced_feeds: Callable[[], Table] = _no_calls
        """When steps in traced functions have started to wait for their batches, and got them. Takes 0.1 ms."""
        self.stepped: Callable[[int], None] | None = None
        """Called with the number of each step that is noted: writes the newest ones to a file now and then."""
        self._calls = np.zeros((CALLS, 2), np.int64)
        self._call_count = 0
        self._steps = np.zeros((STEPS, 3), np.int64)
        """The steps finished so far, when the newest of them ended, and how long it waited for its batch."""
        self._step_count = 0
        self._fed_ns = 0

    def call(self, entered_ns: int) -> None:
        """This member leaves a collective that it entered at `entered_ns`."""
        row = self._calls[self._call_count % CALLS]
        row[0] = entered_ns
        row[1] = self.now_ns()
        self._call_count += 1

    def feed(self, waited_ns: int) -> None:
        """The next batch is there, and this member has waited for it."""
        self._fed_ns += waited_ns

    def step(self, number: int) -> None:
        """This member has finished `number` steps in all."""
        row = self._steps[self._step_count % STEPS]
        row[0] = number
        row[1] = self.now_ns()
        row[2] = self._fed_ns
        self._fed_ns = 0
        self._step_count += 1

    def calls(self) -> Table:
        """When this member entered and left each of the newest collectives, in their order: shape (n, 2)."""
        eager = self._calls[: min(self._call_count, CALLS)]
        calls = np.concatenate([eager, self.traced()])
        return calls[np.argsort(calls[:, 0], kind="stable")]

    def steps(self) -> Table:
        """Number, end, and wait for data of the newest steps, in their order: shape (n, 3), a copy."""
        first = max(0, self._step_count - STEPS)
        steps = self._steps[np.arange(first, self._step_count) % STEPS]
        feeds = self.traced_feeds()
        if len(feeds) and len(steps):
            steps[1:, 2] += waits(feeds[np.argsort(feeds[:, 0], kind="stable")], steps[:, 1])
        return steps

    def times(self) -> StepTimes | None:
        """Where the newest steps went; None before there are two. Takes 0.1 ms."""
        steps = self.steps()[-LOOKED_STEPS - 1 :]
        if len(steps) < 2:
            return None
        counts = np.maximum(1, np.diff(steps[:, 0]))
        spans_s = np.diff(steps[:, 1]) / counts / 1e9
        waits_s = waits(self.calls(), steps[:, 1]) / counts / 1e9
        fed_s = np.minimum(steps[1:, 2] / counts / 1e9, spans_s - waits_s)
        left_out = _LEFT_OUT * len(spans_s) // LOOKED_STEPS
        usual = np.argsort(spans_s - waits_s, kind="stable")[left_out : len(spans_s) - left_out]
        span_s, wait_s, data_s = (float(values[usual].mean()) for values in (spans_s, waits_s, fed_s))
        return StepTimes(max(0.0, span_s - wait_s - data_s), wait_s, data_s, len(spans_s))

    def file(self, count: int = STEPS) -> StepFile | None:
        """The newest `count` steps, and their collectives, for the run directory; None without a step."""
        if not self._step_count:
            return None
        steps = self.steps()[-count:]
        calls = self.calls()[-CALLS:]
        if count < STEPS:
            calls = calls[calls[:, 1] >= steps[0, 1]]
        return StepFile(steps.tolist(), calls.tolist())


def waits(calls: Table, ends: Table) -> Table:
    """For each span between two of `ends`, how long this member was in one collective at least.

    `calls` are in the order of their starts.
    """
    if not len(calls):
        return np.zeros(len(ends) - 1, np.int64)
    call_ends = np.maximum.accumulate(calls[:, 1])
    call_starts = calls[:, 0].copy()
    call_starts[1:] = np.maximum(call_starts[1:], call_ends[:-1])  # those of one step may run at the same time
    overlaps = np.minimum(call_ends, ends[1:, None]) - np.maximum(call_starts, ends[:-1, None])
    return np.asarray(np.maximum(overlaps, 0).sum(axis=1))


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


PROGRESS_S = 0.5
"""The shortest time between two reports of a member's step."""


class StepReports:
    """The steps of one training. For the thread that trains."""

    def __init__(self, stepped: Callable[[int, bool], None], clock: Clock, notes: StepNotes | None = None) -> None:
        """`stepped` sends a step, and whether training continues. Raises OSError when the agent is gone.

        `notes` are those of its ring.
        """
        self._notes = notes
        self._stepped = stepped
        self._clock = clock
        self._reported_at = -math.inf

    def reached(self, step: int) -> None:
        """Report `step`, unless another step was reported a moment ago. Raises OSError when the agent is gone."""
        newest_step.mark(step)
        if self._notes is not None:
            self._notes.step(step)
            if self._notes.stepped is not None:
                self._notes.stepped(step)
        if (now := self._clock.now()) - self._reported_at >= PROGRESS_S:
            self._reported_at = now
            self._stepped(step, True)
