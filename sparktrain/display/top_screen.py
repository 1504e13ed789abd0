"""The full screen of `sparktrain top`: what its keys change, and its picture. Pure: no terminal, thread or store."""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display import standing
from sparktrain.display.parts import STYLES, one_line
from sparktrain.display.status_view import driver_words, state_words
from sparktrain.runs.steps.step_lines import step_lines
from sparktrain.runs.view import RunState, RunView, TrialView
from sparktrain.state.trial import TrialStatus

KEYS = "↑↓ select  s sort  f filter  l log  x stop  q quit"
LOG_KEYS = "follows the log  q back"
_AROUND = 5
"""Lines of the screen that are no rows of trials."""
_WIDE = 80


class TopKey(StrEnum):
    """A key that the screen knows."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    SORT = "s"
    FILTER = "f"
    LOG = "l"
    STOP = "x"
    YES = "y"
    QUIT = "q"
    OTHER = "other"


class TopAction(StrEnum):
    """What a key asks of the command."""

    QUIT = "quit"
    STOP = "stop"


class TopScreen:
    """A rich renderable, and its answers to keys. For one thread at a time."""

    def __init__(self, view: RunView, now: float) -> None:
        """`now` is in seconds since 1970 by this host's clock."""
        self.log: int | None = None
        """The trial with the log that is shown."""
        self.log_text = ""
        self._selected = 0
        self._first = 0
        self._page = 10
        self._sort = 0
        self._filter: TrialStatus | None = None
        self._asks = False
        self._message = ""
        self._rows: list[TrialView] = []
        self._view = view
        self._now = now
        self._arrange(None)

    def update(self, view: RunView, now: float) -> None:
        """Show this view from now on. The selected trial stays selected."""
        news = view is not self._view
        self._view = view
        self._now = now
        if news:
            self._arrange(self._chosen())

    def show_message(self, message: str) -> None:
        """Show `message` until the next key."""
        self._message = message

    def press(self, key: TopKey) -> TopAction | None:
        """Change what is shown, and return what the command must do."""
        is_answer = self._asks
        self._asks = False
        self._message = ""
        if is_answer:
            return TopAction.STOP if key is TopKey.YES else None
        if self.log is not None:
            if key is TopKey.QUIT:
                self.log = None
                self.log_text = ""
            return None
        match key:
            case TopKey.QUIT:
                return TopAction.QUIT
            case TopKey.SORT | TopKey.FILTER:
                self._change(key)
            case TopKey.LOG:
                self.log = self._chosen()
            case TopKey.STOP:
                self._ask()
            case _:
                self._move(key)
        return None

    def _ask(self) -> None:
        """Ask whether to stop the run where this process can; otherwise show how."""
        view = self._view
        driver = self._view.driver.identity
        if view.state is not RunState.RUNNING or driver is None:
            self._message = "the run has no driver that runs: there is nothing to stop"
        elif not view.driver.same_host:
            self._message = f"stop it on {driver.host}: kill -INT {driver.pid}"
        else:
            self._asks = True

    def _move(self, key: TopKey) -> None:
        steps = {
            TopKey.UP: -1, TopKey.DOWN: 1, TopKey.PAGE_UP: -self._page, TopKey.PAGE_DOWN: self._page,
            TopKey.HOME: -len(self._rows), TopKey.END: len(self._rows),
        }  # fmt: skip
        self._selected = max(0, min(len(self._rows) - 1, self._selected + steps.get(key, 0)))

    def _change(self, key: TopKey) -> None:
        chosen = self._chosen()
        if key is TopKey.SORT:
            self._sort = (self._sort + 1) % len(_ORDERS)
        else:
            choices = [None, *(status for status in TrialStatus if self._view.counts.get(status))]
            at = choices.index(self._filter) if self._filter in choices else 0
            self._filter = choices[(at + 1) % len(choices)]
        self._arrange(chosen)

    def _arrange(self, chosen: int | None) -> None:
        rows = [trial for trial in self._view.trials if self._filter in (None, trial.result.status)]
        # By all trials, and not by those that the filter shows: all views of a run write a metric in one way.
        values = (_value(trial, self._view.spec.metric) for trial in self._view.trials)
        self._write = formatting.number_format(value for value in values if value is not None)
        order = _ORDERS[self._sort][1]
        self._rows = sorted(rows, key=lambda trial: (order(trial, self._view), trial.result.id))
        ids = [int(trial.result.id) for trial in self._rows]
        at = ids.index(chosen) if chosen in ids else self._selected
        self._selected = max(0, min(len(self._rows) - 1, at))

    def _chosen(self) -> int | None:
        return int(self._rows[self._selected].result.id) if self._rows else None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        if self.log is not None:
            yield Group(*self._log_lines(height))
            return
        self._page = max(1, height - _AROUND)
        if not self._first <= self._selected < self._first + self._page:
            self._first = max(0, self._selected - (self._page - 1 if self._selected > self._first else 0))
        self._first = max(0, min(self._first, len(self._rows) - self._page))
        lines = [*self._header(), self._heading(options.max_width)]
        for number, trial in enumerate(self._rows[self._first : self._first + self._page], self._first):
            style = "reverse" if number == self._selected else STYLES.get(trial.result.status, "")
            lines.append(one_line(Text(self._row(trial, options.max_width), style=style)))
        notes = [one_line(Text(formatting.plain(note), style="dim")) for note in self._view.notes]
        lines += [*self._step_lines(), *([Text()] if notes else []), *notes][: max(0, height - 1 - len(lines))]
        lines += [Text()] * (height - 1 - len(lines))
        yield Group(*lines, one_line(self._foot()))

    def _header(self) -> list[Text]:
        view = self._view
        line = Text(formatting.plain(view.name), style="bold").append(f"  {state_words(view, self._now)}", "not bold")
        if view.state is RunState.ENDED:
            line = Text(formatting.plain(view.name), style="bold").append(f"  {view.status}", "not bold")
        of = standing.of_view(view)
        counts = standing.counts("", of)
        counts.append("".join(f"  {part}" for part in standing.best_part(of)), "bold green")
        return [one_line(line), one_line(counts), one_line(Text(driver_words(view, self._now), style="dim"))]

    def _step_lines(self) -> list[Text]:
        """Where the steps of the selected trial's gang go, for the lines that no trial needs."""
        times = self._rows[self._selected].step_times if self._rows else None
        if times is None:
            return []
        hosts = [member.host for member in self._rows[self._selected].result.members]
        return [Text(), *(one_line(Text(line, style="dim")) for line in step_lines(times, hosts))]

    def _heading(self, width: int) -> Text:
        metric = formatting.shorten(formatting.plain(self._view.spec.metric or ""), 12)
        line = _cells("trial", "status", "gen", "step", metric, "time", "host", "parameters", width)
        order = f"by {_ORDERS[self._sort][0]}" + ("" if self._filter is None else f", {self._filter} alone")
        shown = f"{self._selected + 1 if self._rows else 0}/{len(self._rows)} {order}"
        room = max(0, width - len(shown) - 2)
        return Text(f"{line[:room]:<{room}}  {shown}", style="bold", no_wrap=True, overflow="crop")

    def _row(self, trial: TrialView, width: int) -> str:
        result = trial.result
        value = _value(trial, self._view.spec.metric)
        seconds = _seconds(trial, self._now, self._view)
        return _cells(
            str(result.id), str(result.status), str(result.generations or ""),
            "" if trial.step is None else str(trial.step), "" if value is None else self._write(value),
            formatting.duration(seconds) if seconds else "",
            formatting.shorten(formatting.short_host(result.host or ""), 12),
            formatting.params(result.params, max(8, width)), width,
        )  # fmt: skip

    def _log_lines(self, height: int) -> list[Text]:
        head = Text(f"log of trial {self.log}", style="bold")
        lines = [one_line(Text.from_ansi(line)) for line in self.log_text.splitlines()[-(height - 2) :]]
        return [head, *lines, *([Text()] * (height - 2 - len(lines))), Text(LOG_KEYS, style="dim")]

    def _foot(self) -> Text:
        driver = self._view.driver.identity
        if self._asks and driver is not None:
            query = f"stop the run by SIGINT to process {driver.pid}, as Ctrl-C does? y: yes, other keys: no"
            return Text(query, style="bold red")
        return Text(self._message, style="yellow") if self._message else Text(KEYS, style="dim")


def _cells(
    trial: str, status: str, gen: str, step: str, metric: str, time: str, host: str, params: str, width: int
) -> str:
    """One line of the table; a narrow one has neither generation nor host."""
    extra = (f"{gen:>3}  ", f"{host:<12}  ") if width >= _WIDE else ("", "")
    return f"{trial:>6}  {status:<9}  {extra[0]}{step:>7}  {metric:>10}  {time:>8}  {extra[1]}{params}"


def _value(trial: TrialView, metric: str | None) -> float | None:
    """The metric of the result, or of the newest report."""
    if metric is None:
        return None
    reported = trial.report.metrics if trial.report is not None else {}
    return trial.result.metrics.get(metric, reported.get(metric))


def _seconds(trial: TrialView, now: float, view: RunView) -> float:
    running = trial.result.status is TrialStatus.RUNNING and view.state is RunState.RUNNING
    return max(0.0, now - trial.since) if running and trial.since is not None else trial.result.seconds


def _by_metric(trial: TrialView, view: RunView) -> tuple[bool, float]:
    value = _value(trial, view.spec.metric)
    if value is None or math.isnan(value):
        return True, 0.0
    return False, -value if view.spec.mode == "max" else value


_STATUSES = {status: number for number, status in enumerate(TrialStatus)}
_ORDERS: Sequence[tuple[str, Callable[[TrialView, RunView], Any]]] = (
    ("trial", lambda trial, view: 0),
    ("status", lambda trial, view: _STATUSES[trial.result.status]),
    ("metric", _by_metric),
    ("step", lambda trial, view: -(-1 if trial.step is None else trial.step)),
    ("time", lambda trial, view: -trial.result.seconds if trial.result.status.final else -math.inf),
)
"""What `s` sorts by, in its order."""
