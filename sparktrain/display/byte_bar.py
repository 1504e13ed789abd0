"""A bar in a terminal for bytes that are read; elsewhere nothing is shown."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from sparktrain.display.live import is_live
from sparktrain.display.shared_stream import SteadyConsole


@contextmanager
def shown_bytes(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yields a callback for the bytes that were read and the total, and shows them on stderr."""
    if quiet or sys.stderr is None or not is_live(sys.stderr):
        yield lambda size, total: None
        return
    console = SteadyConsole(file=sys.stderr, force_jupyter=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda size, total: progress.update(task, completed=size, total=total)
