"""Displays that draw: each in its own thread, so that a stuck or closed terminal never delays a run."""

import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.base.boundary import message_of
from sparktrain.base.ipython_shell import ipython_shell
from sparktrain.base.threads import spawn
from sparktrain.display import gang_text, gang_view, sweep_view
from sparktrain.display.progress import Display, NullDisplay, Progress
from sparktrain.display.shared_stream import STREAMS, SharedTerminal, SteadyConsole
from sparktrain.errors import BugError
from sparktrain.runs.trial_result import FAILED_OR_LOST, TrialResult

CLOSE_TIMEOUT_S = 2.0
"""How long the end of a run waits until the last picture is drawn."""
STATUS_INTERVAL_S = 10.0
"""Least time between two status lines."""
QUIET_INTERVAL_S = 300.0
"""Time between two status lines between which nothing has happened: a log shows that the run is alive."""

_SHOWN_PER_CAUSE = 3
_NOTEBOOK_WIDTH = 95
"""JupyterLab shows so many columns beside its file browser, in a window of 1300 pixels."""
_NOTEBOOK_ROWS = 40
_NOTEBOOK_FAILURES = 8

logger = logging.getLogger("sparktrain")


class DrawingDisplay(Display):
    """Base of the displays that draw: the run leaves its news, and a thread shows them when it can."""

    interval_s = 0.1
    """Least time between two pictures."""
    repeat_s: float | None = None
    """Time after which a picture is drawn once more although nothing has changed; None where it stays by itself."""

    def __init__(self, close_timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        self._close_timeout_s = close_timeout_s
        self._latest: Progress | None = None
        self._ended: deque[TrialResult] = deque()
        self._lines: deque[str] = deque()
        self._shown_restarts = 0
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """See base class."""
        self._thread = spawn(self._work, "sparktrain-display")

    def print_line(self, line: str) -> None:
        """See base class."""
        self._lines.append(line)
        self._news.set()

    def update(self, progress: Progress) -> None:
        """See base class."""
        self._latest = progress
        self._news.set()

    def trial_ended(self, trial: TrialResult) -> None:
        """See base class."""
        self._ended.append(trial)
        self._news.set()

    def close(self) -> None:
        """See base class."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(self._close_timeout_s)

    def _work(self) -> None:
        try:
            self._open()
            while not self._closing.is_set():
                self._news.wait(self.repeat_s)
                self._news.clear()
                self._show()
                self._closing.wait(self.interval_s)
            self._show()
            self._end(self._latest)
        except BaseException as error:  # whatever a terminal or a stream of the user raises, the run continues
            logger.warning("progress is no longer shown: %s: %s", type(error).__name__, message_of(error))

    def _show(self) -> None:
        while self._lines:
            self._draw_line(self._lines.popleft())
        while self._ended:
            self._draw_ended(self._ended.popleft())
        progress = self._latest
        if progress is None:
            return
        for number, restart in enumerate(progress.causes[self._shown_restarts :], self._shown_restarts + 1):
            self._draw_restart(progress, gang_text.restart_line(number, restart))
        self._shown_restarts = len(progress.causes)
        self._draw(progress)

    def _open(self) -> None:
        """Prepare to draw. This and what follows is called in the display's thread."""

    def _draw(self, progress: Progress) -> None:
        raise NotImplementedError

    def _draw_line(self, line: str) -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def _draw_ended(self, trial: TrialResult) -> None:
        raise NotImplementedError

    def _draw_restart(self, progress: Progress, line: str) -> None:
        """Show why the gang restarted; the line stays."""
        raise NotImplementedError

    def _end(self, progress: Progress | None) -> None:
        """Release what `_open` took; nothing is drawn afterwards."""


class TerminalDisplay(DrawingDisplay):
    """A picture at the end of a terminal that changes in place; failures stay above it.

    Runs that are on at the same time have one block of it each.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._screen = sweep_view.Screen()
        self._causes: Counter[str] = Counter()
        self._terminal: SharedTerminal | None = None

    @property
    def _shown(self) -> SharedTerminal:
        if self._terminal is None:
            raise BugError("a display draws before it is open")
        return self._terminal

    def _open(self) -> None:
        self._terminal = STREAMS.enter_terminal(self._stream, self._screen)

    def _draw(self, progress: Progress) -> None:
        self._shown.draw(lambda: self._screen.update(progress))

    def _draw_line(self, line: str) -> None:
        self._shown.print(Text(line))

    def _draw_ended(self, trial: TrialResult) -> None:
        self._screen.trial_ended(trial)
        if trial.status not in FAILED_OR_LOST:
            return
        cause = trial.error.summary if trial.error else ""
        self._causes[cause] += 1
        if self._causes[cause] <= _SHOWN_PER_CAUSE:
            if self._shown.is_shared and self._latest is not None:
                self._shown.print(Text(f"{self._latest.name}:"))
            self._shown.print(self._screen.failed(trial))
        if self._causes[cause] == _SHOWN_PER_CAUSE:
            self._shown.print("  further trials with this cause are only counted", style="dim")

    def _draw_restart(self, progress: Progress, line: str) -> None:
        name = f"{progress.name}: " if self._shown.is_shared else ""
        self._shown.print(Text(f"{name}{line}", style="yellow"))

    def _end(self, progress: Progress | None) -> None:
        terminal = self._shown
        STREAMS.leave_terminal(self._stream, self._screen)
        if progress is not None:
            terminal.print(sweep_view.summary(self._screen))


class NotebookDisplay(DrawingDisplay):
    """A picture in the output of a notebook's cell that changes in place.

    Each update is the whole picture, and it is repeated without news: a browser that was away and comes back, and has
    missed updates, soon shows the present state.
    """

    interval_s = 0.5
    repeat_s = 10.0

    def __init__(self, repeat_s: float = repeat_s) -> None:
        super().__init__()
        self.repeat_s = repeat_s
        self._screen = sweep_view.Screen()
        self._failures: deque[TrialResult] = deque(maxlen=_NOTEBOOK_FAILURES)
        self._restarts: deque[str] = deque(maxlen=_NOTEBOOK_FAILURES)
        self._lines_shown: list[str] = []
        self._handle: Any = None  # IPython has no types

    def start(self) -> None:
        """See base class."""
        from IPython import display

        # Here, in the thread of the caller, the kernel knows which cell the output belongs to.
        self._handle = display.display({"text/html": ""}, raw=True, display_id=True)
        super().start()

    def _show(self) -> None:
        super()._show()
        if self._latest is None:
            self._publish(self._screen)

    def _draw(self, progress: Progress) -> None:
        self._screen.update(progress)
        self._publish(self._screen)

    def _draw_line(self, line: str) -> None:
        self._lines_shown.append(line)

    def _draw_ended(self, trial: TrialResult) -> None:
        self._screen.trial_ended(trial)
        if trial.status in FAILED_OR_LOST:
            self._failures.append(trial)

    def _draw_restart(self, progress: Progress, line: str) -> None:
        self._restarts.append(line)

    def _end(self, progress: Progress | None) -> None:
        self._publish(sweep_view.summary(self._screen))

    def _publish(self, picture: RenderableType) -> None:
        console = Console(
            file=StringIO(),
            record=True,
            width=_NOTEBOOK_WIDTH,
            height=_NOTEBOOK_ROWS,
            force_jupyter=False,
            highlight=False,
        )
        for line in self._lines_shown:
            console.print(Text(line))
        console.print(picture)
        for line in self._restarts:
            console.print(Text(line, style="yellow"))
        for trial in self._failures:
            console.print(self._screen.failed(trial))
        page = console.export_html(theme=_NOTEBOOK_THEME, inline_styles=True, code_format=_NOTEBOOK_PAGE)
        words = self._lines_shown if self._latest is None else [sweep_view.status_line(self._latest)]
        self._handle.update({"text/html": page, "text/plain": "\n".join(words)}, raw=True)


class LineDisplay(DrawingDisplay):
    """Plain lines for a file or a pipe: one for each trial that ends, and the status of the run when it has changed."""

    def __init__(self, stream: TextIO, close_timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        super().__init__(close_timeout_s)
        self._stream = stream
        self._written: tuple[float, str] | None = None
        """Seconds and text of the newest status line."""
        self._standing = ""
        """What had happened by then."""
        self._members_at: float | None = None
        """Seconds of the newest lines for the members of a gang."""
        self._is_shared = False
        """Another run has written to the stream since this one started."""

    def _draw(self, progress: Progress) -> None:
        self._is_shared |= STREAMS.is_shared(self._stream)
        line = sweep_view.status_line(progress)
        if self._written is not None:
            pause = progress.seconds - self._written[0]
            # The log of a CI had a line each minute for a run in which nothing happened.
            happened = sweep_view.standing_line(progress) != self._standing
            if pause < (STATUS_INTERVAL_S if happened else QUIET_INTERVAL_S):
                return
        self._write_status(progress, line)
        if self._members_at is None or progress.seconds - self._members_at >= QUIET_INTERVAL_S:
            self._write_members(progress)

    def _write_members(self, progress: Progress) -> None:
        lines = gang_view.member_lines(progress) if gang_view.shows_members(progress) else []
        for line in lines:
            self._write(f"    {self._name}{line}")
        self._members_at = progress.seconds if lines else self._members_at

    def _draw_line(self, line: str) -> None:
        self._write(line)

    def _open(self) -> None:
        STREAMS.enter_lines(self._stream)

    def _draw_restart(self, progress: Progress, line: str) -> None:
        self._write(f"[{formatting.clock(progress.seconds)}] {self._name}{line}")

    @property
    def _name(self) -> str:
        """The name of the run, once others have written to the stream too; its status has the name anyway."""
        self._is_shared |= STREAMS.is_shared(self._stream)
        return f"{self._latest.name}: " if self._latest is not None and self._is_shared else ""

    def _draw_ended(self, trial: TrialResult) -> None:
        latest = self._latest
        time = formatting.clock(latest.seconds) if latest else "0:00"
        self._write(f"[{time}] {self._name}{sweep_view.ended_line(trial, latest.metric if latest else None)}")

    def _end(self, progress: Progress | None) -> None:
        if progress is not None and (self._written is None or sweep_view.status_line(progress) != self._written[1]):
            self._write_status(progress, sweep_view.status_line(progress))
        STREAMS.leave_lines(self._stream)

    def _write_status(self, progress: Progress, line: str) -> None:
        self._written = (progress.seconds, line)
        self._standing = sweep_view.standing_line(progress)
        remaining = (
            f"; about {formatting.clock(progress.eta_s)} left"
            if progress.eta_s and progress.done != progress.total
            else ""
        )
        self._write(f"[{formatting.clock(progress.seconds)}] {line}{remaining}")

    def _write(self, line: str) -> None:
        # A stream may know only ASCII: a name with other letters must not end the display.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._stream.flush()


def choose_display(*, quiet: bool = False, stream: TextIO | None = None) -> Display:
    """The display that suits `stream`, by default stderr: live in a terminal and in a notebook, lines elsewhere."""
    target = stream if stream is not None else sys.stderr
    if quiet or target is None:
        return NullDisplay()
    if stream is None and in_notebook():
        return NotebookDisplay()
    return TerminalDisplay(target) if is_live(target) else LineDisplay(target)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return getattr(ipython_shell(), "kernel", None) is not None


def is_live(stream: TextIO) -> bool:
    """Whether `stream` is a terminal in which a picture can change in place."""
    try:
        return stream.isatty() and not Console(file=stream, force_jupyter=False).is_dumb_terminal
    except (AttributeError, ValueError):  # no file, or a closed one
        return False


_NOTEBOOK_PAGE = '<pre style="line-height: 1.3; white-space: pre; overflow-x: auto">{code}</pre>'
_BLACK = (30, 30, 30)
_RED = (200, 60, 60)
_GREEN = (40, 150, 70)
_YELLOW = (180, 130, 20)
_GREY = (128, 128, 128)
_NOTEBOOK_THEME = TerminalTheme(
    (255, 255, 255),
    _BLACK,
    [_BLACK, _RED, _GREEN, _YELLOW, (60, 110, 200), (160, 80, 180), (30, 150, 160), _GREY],
    [_GREY, _RED, _GREEN, _YELLOW, (60, 110, 200), (160, 80, 180), (30, 150, 160), _GREY],
)
"""Colours that can be read on light and on dark pages; plain text has the colour of the page."""


@contextmanager
def shown_bytes(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, by a callback for the bytes that were read and the total."""
    if quiet or sys.stderr is None or not is_live(sys.stderr):
        yield lambda size, total: None
        return
    from rich import progress as bars  # commands alone need it

    columns = bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn(binary_units=True)
    console = SteadyConsole(file=sys.stderr, force_jupyter=False)
    with bars.Progress(*columns, bars.TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda size, total: progress.update(task, completed=size, total=total)
