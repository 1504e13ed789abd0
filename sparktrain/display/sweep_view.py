"""A run as it is shown while it runs. Pure: no terminal, no thread."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.base.ids import TrialId
from sparktrain.display import gang_view, parts, standing
from sparktrain.display.parts import GAP, and_more, differing_first, one_line
from sparktrain.display.progress import Progress, RunningTrial
from sparktrain.runs.trial_result import FAILED_OR_LOST, TrialResult

_HOST_WIDTH = 12
_BEFORE = (("trial", 5), ("step", 6))
_AFTER = (("time", 7),)
_GANG = ("members", 7)
_NAME_LIMITS = range(24, 5, -1)
"""Widest headings of metrics and parameters: the first that fits."""
_RESERVED_NAME = 14
"""The widest headings of parameters that metrics leave room for."""
_VALUE_LIMIT = 16
_MOST_ROWS = 32
_HEADER_LINES = 9
"""Lines of a terminal that are not rows of running trials: header, heading, the line below, and the cursor's."""
_SHOWN_METRICS = 4


class Rows:
    """The row of each running trial: the trial keeps it until it ends, and then a new trial takes it."""

    def __init__(self) -> None:
        self._rows: list[TrialId | None] = []

    def place(self, running: Iterable[RunningTrial]) -> list[RunningTrial | None]:
        """The trials in their rows; None is an empty row between others."""
        trials = {trial.id: trial for trial in running}
        self._rows = [number if number in trials else None for number in self._rows]
        for number in trials:
            if number not in self._rows:
                free = next((row for row, occupant in enumerate(self._rows) if occupant is None), len(self._rows))
                self._rows[free : free + 1] = [number]
        while self._rows and self._rows[-1] is None:
            self._rows.pop()
        return [None if number is None else trials[number] for number in self._rows]


class Columns:
    """The columns of the running trials and their widths: no column shrinks while a run runs."""

    def __init__(self) -> None:
        self.host = 6
        self._metrics: dict[str, int] = {}
        self._params: dict[str, int] = {}
        self._values: dict[str, str] = {}
        self._varying: set[str] = set()
        self._writes: dict[str, Callable[[float], str]] = {}
        """How the numbers of each metric are written."""

    def written(self, trial: RunningTrial, name: str) -> str:
        """The cell of a metric, which `see` has seen; empty where the trial has not reported it."""
        return self._writes[name](trial.metrics[name]) if name in trial.metrics else ""

    def see(self, trial: RunningTrial, objective: str | None) -> None:
        """Have room for `trial` from now on."""
        self.host = max(self.host, min(_HOST_WIDTH, len(formatting.short_host(trial.host or ""))))
        for name in sorted(trial.metrics, key=lambda name: name != objective):
            heading = min(_NAME_LIMITS[0], cell_len(formatting.plain(name)))
            number = trial.metrics[name]
            # One number that is not whole makes its column one of fractions for the rest of the run.
            if self._writes.get(name) is not formatting.number:
                self._writes[name] = formatting.number_format([number])
            self._metrics[name] = max(self._metrics.get(name, heading), len(self._writes[name](number)))
        for name, value in trial.params.items():
            shown = formatting.value(value)
            self._params[name] = max(self._params.get(name, 1), min(_VALUE_LIMIT, cell_len(shown)))
            if self._values.setdefault(name, shown) != shown:
                self._varying.add(name)

    def metrics(self, width: int, objective: str | None) -> list[tuple[str, int]]:
        """The columns of metrics that fit into `width` next to the parameters in which trials differ."""
        free_width = width - _total(self._sized(self._varying_names(), _RESERVED_NAME))
        columns: list[tuple[str, int]] = []
        for name in sorted(self._metrics, key=lambda name: name != objective):
            column = (name, self._metrics[name])
            if name == objective or _total([*columns, column]) <= free_width:
                columns.append(column)
        return columns

    def params(self, width: int) -> list[tuple[str, int]]:
        """The columns of parameters that fit into `width`: if not all, those in which trials differ."""
        varying = self._varying_names()
        sizes = (limit for limit in _NAME_LIMITS if _total(self._sized(varying, limit)) <= width)
        limit = next(sizes, _NAME_LIMITS[-1])
        names = [*varying, *(name for name in self._params if name not in varying)]
        columns: list[tuple[str, int]] = []
        for column in self._sized(names, limit):
            if _total([*columns, column]) <= width:
                columns.append(column)
        places = list(self._params)
        return sorted(columns, key=lambda column: places.index(column[0]))

    def by_difference(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """`params`, those in which trials differ first: a line may end before the others."""
        return differing_first(params, self._varying)

    def _varying_names(self) -> list[str]:
        """While nothing is known to differ, each may."""
        return [name for name in self._params if name in self._varying] or list(self._params)

    def _sized(self, names: list[str], limit: int) -> list[tuple[str, int]]:
        return [(name, max(self._params[name], min(limit, cell_len(formatting.plain(name))))) for name in names]


class Screen:
    """A rich renderable of the newest progress. It remembers rows and columns, so that they stay between pictures."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.parts = 1
        """Into how many parts the terminal is divided: one for each run that is shown there."""
        self._rows = Rows()
        self._placed: list[RunningTrial | None] = []
        self._columns = Columns()
        self._members = gang_view.MemberTable()
        self._params: dict[TrialId, dict[str, Any]] = {}

    def update(self, progress: Progress) -> None:
        """Show `progress` from now on."""
        self.progress = progress
        self._placed = self._rows.place(progress.running_trials)
        for trial in progress.running_trials:
            self._columns.see(trial, progress.metric)

    def trial_ended(self, trial: TrialResult) -> None:
        """Remember the parameters of `trial`, which may be the best."""
        self._params[trial.id] = trial.params

    def failed(self, trial: TrialResult) -> Group:
        """The end of a failed or lost trial: its root cause first."""
        return failed_lines(trial, self._columns.by_difference(trial.params))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.progress is None:
            return
        yield Text()
        yield from self._header(self.progress, options.max_width)
        rows = min(_MOST_ROWS, max(1, console.height // self.parts - _HEADER_LINES))
        if gang_view.shows_members(self.progress):
            members = gang_view.members_of(self.progress)
            hidden = len(members[rows:])
            table = self._members.draw(self.progress, options.max_width, rows) if members else None
        else:
            hidden = sum(trial is not None for trial in self._placed[rows:])
            table = self._running(self.progress, options.max_width, rows) if self._placed else None
        if table is not None:
            yield Text()
            yield table
        if hidden:
            yield and_more(hidden)

    def _header(self, progress: Progress, width: int) -> Iterator[RenderableType]:
        if gang_view.shows_members(progress):
            yield one_line(gang_view.counts(progress))
            yield one_line(Text(f"{formatting.clock(progress.seconds)}  {gang_view.newest(progress)}".rstrip()))
            yield one_line(_agents(progress))
            if waiting := gang_view.standbys(progress):
                yield one_line(Text(waiting))
            if slow := gang_view.slow_member(progress):
                yield one_line(Text(slow, style="yellow"))
            return
        yield one_line(_counts(progress, width=width))
        yield _bar(progress, width)
        if progress.metric is not None:
            yield one_line(self.best(progress, "best so far"))
        yield one_line(_agents(progress))

    def best(self, progress: Progress, label: str) -> Text:
        """The best trial so far, on one line."""
        number = None if progress.best is None else TrialId(progress.best[0] * progress.replicas)
        params = {} if number is None else self._params.get(number, {})
        return standing.best_line(progress, self._columns.by_difference(params), label)

    def _running(self, progress: Progress, width: int, rows: int) -> Table:
        gang = [_GANG] if progress.gang > 1 else []
        trailing = [*_AFTER, *gang, ("host", self._columns.host)]
        width -= _total([*_BEFORE, *trailing]) - GAP
        metrics = self._columns.metrics(width, progress.metric)
        params = self._columns.params(width - _total(metrics))
        grid = parts.table(header_style="dim")
        columns = [*_BEFORE, *metrics, *trailing, *params]
        for number, (name, size) in enumerate(columns):
            is_left_aligned = number >= len(columns) - len(params) - 1
            grid.add_column(
                formatting.shorten(formatting.plain(name), size),
                justify="left" if is_left_aligned else "right",
                width=size,
                no_wrap=True,
            )
        for trial in self._placed[:rows]:
            reported = [] if trial is None else [self._columns.written(trial, name) for name, _ in metrics]
            grid.add_row(*(_cells(trial, progress.gang, reported, params) if trial is not None else []))
        return grid


def _cells(trial: RunningTrial, gang: int, reported: list[str], params: list[tuple[str, int]]) -> list[Text]:
    leading_cells = [str(trial.id), "" if trial.step is None else str(trial.step)]
    members = [str(len(trial.members) or gang)] if gang > 1 else []
    trailing_cells = [
        formatting.clock(trial.seconds),
        *members,
        formatting.shorten(formatting.short_host(trial.host or ""), _HOST_WIDTH),
    ]
    values = [formatting.value(trial.params[name]) if name in trial.params else "" for name, _ in params]
    values = [formatting.shorten(value, size) for value, (_, size) in zip(values, params, strict=True)]
    return [Text(cell) for cell in (*leading_cells, *reported, *trailing_cells, *values)]


def _total(columns: Sequence[tuple[str, int]]) -> int:
    """Places that the columns take, with the gap before each."""
    return sum(size + GAP for _, size in columns)


def summary(screen: Screen) -> Group:
    """The lines that stay when the run has ended."""
    progress = screen.progress
    if progress is None:
        return Group()
    over = progress.done == progress.total
    if gang_view.shows_members(progress):
        line = gang_view.counts(progress, over).append(f"  in {formatting.clock(progress.seconds)}", style="not bold")
        return Group(one_line(line))
    line = _counts(progress, over)
    line.append(f"  in {formatting.clock(progress.seconds)}", style="not bold")
    return Group(one_line(line), *([one_line(screen.best(progress, "best"))] if progress.best is not None else []))


def status_line(progress: Progress) -> str:
    """The run on one line, without its times, so that it changes only when something has happened."""
    agents = _agents(progress).plain.replace("  ", ", ")
    if gang_view.shows_members(progress):
        return f"{gang_view.status(progress)}; {agents}"
    counts = _counts(progress).plain.replace("  ", ": ", 1).replace("  ", ", ")
    return "; ".join([counts, *standing.best_part(progress), agents])


def standing_line(progress: Progress) -> str:
    """As `status_line`, without the steps and metrics of a gang, which advance all the time."""
    if gang_view.shows_members(progress):
        return f"{gang_view.counts(progress).plain}; {_agents(progress).plain}"
    return status_line(progress)


def ended_line(trial: TrialResult, metric: str | None) -> str:
    """The end of a trial on one line."""
    params = f" ({formatting.params(trial.params)})" if trial.params else ""
    if trial.error is not None:
        log = f"; log: {formatting.plain(trial.log)}" if trial.log and trial.status in FAILED_OR_LOST else ""
        duration = f" after {formatting.duration(trial.seconds)}" if trial.generations else ""
        return f"trial {trial.id} {trial.status}{duration}: {formatting.plain(trial.error.summary)}{params}{log}"
    listed = {metric: trial.metrics[metric]} if metric in trial.metrics and metric is not None else trial.metrics
    listed = dict(list(listed.items())[:_SHOWN_METRICS])
    shown = f": {parts.metrics(listed)}" if listed else ""
    why = f": {formatting.plain(trial.pruned)}" if trial.pruned else ""
    return f"trial {trial.id} {trial.status} in {formatting.duration(trial.seconds)}{shown}{params}{why}"


def failed_lines(trial: TrialResult, params: Mapping[str, Any] | None = None) -> Group:
    """The end of a failed or lost trial: its root cause first. `params` are in the order of importance."""
    line = Text(f"trial {trial.id} {trial.status} after {formatting.duration(trial.seconds)}: ", style="red")
    line.append(formatting.plain(trial.error.summary if trial.error else "no cause is known"), style="bold")
    where = [one_line(Text(f"  {formatting.params(params or trial.params)}", style="dim"))]
    if trial.log:
        where.append(Text(f"  log: {formatting.plain(trial.log)}", style="dim"))
    return Group(line, *where)


def _counts(progress: Progress, over: bool = False, width: int | None = None) -> Text:
    return standing.counts(progress.name, progress, None if over else "running", width)


def _bar(progress: Progress, width: int) -> RenderableType:
    time = formatting.clock(progress.seconds)
    if progress.eta_s is not None and progress.done != progress.total:
        time += f", about {formatting.clock(progress.eta_s)} left"
    if progress.total is None:
        return one_line(Text(time))
    grid = Table.grid(padding=(0, GAP, 0, 0), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True, min_width=min(26, width))
    grid.add_row(ProgressBar(max(1, progress.total), progress.done), Text(time))
    return grid


def _agents(progress: Progress) -> Text:
    texts = [Text(f"agents {progress.agents_alive} of {progress.agents_wanted}")]
    if progress.restarts:
        texts.append(Text(formatting.count(progress.restarts, "restart"), style="yellow"))
    if progress.note:
        texts.append(Text(formatting.plain(progress.note), style="yellow"))
    # A note about agents replaces their count.
    return Text("  ").join(texts[1:] if "agents" in progress.note else texts)
