"""Streams on which several runs show their progress at the same time."""

import threading
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live

from sparktrain.display.sweep_view import Screen


class SteadyConsole(Console):
    """A console that raises a broken pipe as any other error: rich would silence the standard output and exit."""

    def on_broken_pipe(self) -> None:
        """See base class."""
        raise


class _Stack:
    """The pictures of all runs on one terminal, one below the other."""

    def __init__(self) -> None:
        self.screens: list[Screen] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.screens


class SharedTerminal:
    """One picture at the end of a terminal, with a block for each run; lines that stay are above it. In any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._lock = threading.RLock()
        self._stack = _Stack()
        self._console = SteadyConsole(file=stream, highlight=False, force_jupyter=False)
        # Standard streams are left as they are: they belong to the caller's threads.
        self._live = Live(
            self._stack,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    @property
    def is_shared(self) -> bool:
        """Several runs are on it."""
        return len(self._stack.screens) > 1

    def add(self, screen: Screen) -> None:
        """Show the block of one run more."""
        with self._lock:
            self._stack.screens.append(screen)
            self._divide()
            if not self._live.is_started:
                self._live.start()

    def remove(self, screen: Screen) -> bool:
        """Show the block no more; returns whether it was the last one."""
        with self._lock:
            self._stack.screens.remove(screen)
            self._divide()
            if self._stack.screens:
                self._live.refresh()
            else:
                self._live.stop()
            return not self._stack.screens

    def _divide(self) -> None:
        for screen in self._stack.screens:
            screen.parts = len(self._stack.screens)

    def draw(self, change: Callable[[], None]) -> None:
        """Change a block by `change`, and show the picture."""
        with self._lock:
            change()
            self._live.refresh()

    def print(self, line: RenderableType, style: str = "") -> None:
        """Print a line above the picture."""
        with self._lock:
            self._console.print(line, style=style or None)


class SharedStreams:
    """The streams on which runs show their progress now. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._terminals: dict[int, SharedTerminal] = {}
        self._writers: dict[int, int] = {}
        """How many displays write lines to a stream."""

    def enter_terminal(self, stream: TextIO, screen: Screen) -> SharedTerminal:
        """Show one run more on a terminal."""
        with self._lock:
            terminal = self._terminals.get(id(stream)) or SharedTerminal(stream)
            terminal.add(screen)
            self._terminals[id(stream)] = terminal
            return terminal

    def leave_terminal(self, stream: TextIO, screen: Screen) -> None:
        """The run of `screen` is over."""
        with self._lock:
            if self._terminals[id(stream)].remove(screen):
                del self._terminals[id(stream)]

    def enter_lines(self, stream: TextIO) -> None:
        """One run more writes lines to a stream."""
        with self._lock:
            self._writers[id(stream)] = self._writers.get(id(stream), 0) + 1

    def leave_lines(self, stream: TextIO) -> None:
        """A run writes no more lines."""
        with self._lock:
            self._writers[id(stream)] -= 1
            if not self._writers[id(stream)]:
                del self._writers[id(stream)]

    def is_shared(self, stream: TextIO) -> bool:
        """Several runs write lines to the stream."""
        with self._lock:
            return self._writers.get(id(stream), 0) > 1


STREAMS = SharedStreams()
"""Those of this process."""
