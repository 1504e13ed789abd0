"""A run, or several, as `sparktrain status` shows them. Pure: no terminal, no thread, no store."""

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.base.clock import time_of_day
from sparktrain.display import gang_text, parts, standing, trial_table
from sparktrain.display.parts import GAP, and_more, differing_first, one_line, table
from sparktrain.display.run_outcome import outcome_lines
from sparktrain.display.summary import Lines, Summary
from sparktrain.display.sweep_view import failed_lines
from sparktrain.runs.steps.step_lines import slow_line, step_lines
from sparktrain.runs.trial_result import FAILED_OR_LOST
from sparktrain.runs.view import RunState, RunView, TrialView
from sparktrain.state.outcome import OF_DRAIN, PLANNED, Restart
from sparktrain.state.trial import TrialStatus

_MOST_ROWS = 32
_RESERVED_LINES = 12
"""Lines of a terminal that are not rows of trials, while a run is watched."""
_SHOWN_FAILURES = 3
_SHOWN_RESTARTS = 6
_GO_FIRST = (4, 6, 3, 7)
"""Columns that are left out first to make room for parameters: checkpoint, generation, age of the report, and hosts."""
_CUT = 2
_CUT_AT_LEAST = 10
"""The column that a narrow terminal cuts then: what was reported."""
_PARAMS_AT_LEAST = 16
_STYLES = {RunState.RUNNING: "green", RunState.GONE: "red", RunState.ENDED: ""}


class StatusScreen:
    """A rich renderable of one run at `now`, by this host's clock."""

    def __init__(self, view: RunView, now: float, model: str | None = None) -> None:
        """`model` is where the model of a run of one gang is, once it has ended."""
        self._view = view
        self._now = now
        self._model = model

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view = self._view
        if view.state is RunState.ENDED:
            yield from self._ended(console, options)
        else:
            yield from self._header(options.max_width)
            rows = min(_MOST_ROWS, max(3, console.height - _RESERVED_LINES)) if console.is_terminal else _MOST_ROWS
            yield from _running(view, self._now, options.max_width, rows)
            yield from _step_times(view)
            yield from _restarts(view)
            yield from _failures(view)
            yield from (Text(line, style="dim") for line in trial_table.label_lines(view.results))
            yield Text()
            yield Text(f"run directory: {formatting.plain(view.directory)}", style="dim")
        yield from (Text(f"note: {formatting.plain(note)}", style="yellow") for note in view.notes)
        if not view.complete and view.state is not RunState.RUNNING:
            how = view.commands.how_to_resume(view.directory, view.name)
            yield Text(f"resume with: {formatting.plain(how)}", style="bold")

    def _header(self, width: int) -> Iterator[Text]:
        view = self._view
        line = Text(formatting.plain(view.name), style="bold").append("  ")
        line.append(state_words(view, self._now), f"{_STYLES[view.state]} not bold")
        yield one_line(line)
        yield one_line(Text(driver_words(view, self._now), style="dim"))
        yield one_line(_counts(view, width))
        if view.spec.metric is not None:
            yield one_line(_best(view))
        if view.driver.board is not None:
            yield Text(f"TensorBoard: {formatting.plain(view.driver.board)}")

    def _ended(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = self._view.as_outcome()
        if self._view.kind == "run":
            yield from console.render(Lines(outcome_lines(result, self._model)), options)
            yield from _step_times(self._view)
        else:
            yield from console.render(Summary(result), options)
        yield Text(driver_words(self._view, self._now), style="dim")


def status_line(view: RunView) -> str:
    """The run on one line, without what changes by itself."""
    head = [f"{formatting.plain(view.name)}: {_state(view)}", _counts(view).plain.replace("  ", ", ")]
    newest = [_newest(trial) for trial in view.trials if trial.result.status is TrialStatus.RUNNING]
    shown = [line for line in newest if line][:_SHOWN_FAILURES]
    return "; ".join([*head, *standing.best_part(standing.of_view(view)), *shown])


def state_words(view: RunView, now: float) -> str:
    """Whether the run still runs, and since when."""
    if view.state is RunState.RUNNING:
        return f"running for {formatting.clock(view.seconds(now))}"
    last_record = view.times.last_record
    silent = f", last record {formatting.ago(now - last_record)}" if last_record else ""
    driver = view.driver.identity
    if driver is None:
        return "a copy of a run, which no driver has resumed" if view.driver.copied else "no driver has started it"
    same_host = view.driver.same_host or not driver.address
    return (
        f"its driver is gone{silent}"
        if same_host
        else f"its driver does not answer from here{silent}: gone, or cut off"
    )


def driver_words(view: RunView, now: float) -> str:
    """The driver that owns, or owned, the run."""
    driver = view.driver.identity
    times = view.times
    if driver is None:
        return "no driver has owned it"
    time = f" since {time_of_day(times.driver_started)}" if times.driver_started else ""
    if view.state is RunState.ENDED:
        time = f"; it ended {formatting.ago(now - times.last_record)}" if times.last_record else ""
    return f"driver: {formatting.plain(str(driver))}{time}, sparktrain {formatting.plain(driver.sparktrain)}"


def _state(view: RunView) -> str:
    if view.state is RunState.GONE:
        return "its driver is gone"
    return str(view.status or "running")


def _counts(view: RunView, width: int | None = None) -> Text:
    of = standing.of_view(view)
    running = {RunState.RUNNING: "running", RunState.GONE: "was running" if of.running == 1 else "were running"}
    return standing.counts("", of, running.get(view.state), width)


def _best(view: RunView) -> Text:
    params = {} if view.best is None else view.best.params
    return standing.best_line(standing.of_view(view), params, "best so far")


def _running(view: RunView, now: float, width: int, rows: int) -> RenderResult:
    """The trials that run, or that ran when the driver was lost."""
    trials = [trial for trial in view.trials if trial.result.status is TrialStatus.RUNNING]
    if not trials:
        return
    yield Text()
    # A report has the number that the function gives it, mostly of an epoch, and a checkpoint counts optimizer steps.
    columns = [("trial", "right"), ("report", "right"), ("metrics", "left"), ("", "right")]
    columns += [("checkpoint", "left"), ("time", "right"), ("generation", "right"), ("host", "left")]
    writes = parts.metric_formats(trial.report.metrics for trial in trials if trial.report is not None)
    cells = [_cells(trial, view, now, writes) for trial in trials[:rows]]
    sizes = [max(len(name), *(len(row[i]) for row in cells)) + GAP for i, (name, _) in enumerate(columns)]
    shown_columns = list(range(len(columns)))
    for number in _GO_FIRST:
        if width - sum(sizes[index] for index in shown_columns) < _PARAMS_AT_LEAST:
            shown_columns.remove(number)
    # rich cuts the cells of any column that is too wide, numbers too: here text alone is cut, before rich sees it.
    if (missing := sum(sizes[index] for index in shown_columns) + _PARAMS_AT_LEAST - width) > 0:
        for row in cells:
            row[_CUT] = formatting.shorten(row[_CUT], max(_CUT_AT_LEAST, sizes[_CUT] - GAP - missing))
        sizes[_CUT] = max(_CUT_AT_LEAST + GAP, sizes[_CUT] - missing)
    params_width = max(_PARAMS_AT_LEAST, width - sum(sizes[index] for index in shown_columns))
    grid = table(*(columns[index] for index in shown_columns), ("parameters", "left"))
    differ = trial_table.varying(view.results)
    for trial, row in zip(trials, cells, strict=False):
        params = differing_first(trial.result.params, differ)
        grid.add_row(*(Text(row[index]) for index in shown_columns), Text(formatting.params(params, params_width)))
    yield grid
    if len(trials) > rows:
        yield and_more(len(trials) - rows)


def _cells(trial: TrialView, view: RunView, now: float, writes: Mapping[str, Callable[[float], str]]) -> list[str]:
    report = trial.report
    result = trial.result
    metrics = {} if report is None else parts.objective_first(report.metrics, view.spec.metric)
    hosts = list(dict.fromkeys(formatting.short_host(member.host) for member in result.members if member.host))
    until = now if view.state is RunState.RUNNING else (view.times.last_record or now)
    saved = "" if trial.checkpoint is None else f"after {formatting.count(trial.checkpoint.step, 'step')}"
    if trial.saved:
        saved += f", {formatting.ago(now - trial.saved)}"
    return [
        str(result.id),
        "" if report is None else str(report.step),
        formatting.shorten(parts.metrics(dict(list(metrics.items())[:2]), writes), 36),
        "" if not trial.reported else formatting.ago(now - trial.reported),
        saved,
        "" if trial.since is None else formatting.clock(until - trial.since),
        str(result.generations),
        formatting.shorten(", ".join(hosts), 24),
    ]


def _newest(trial: TrialView) -> str:
    milestones = [f"report {trial.report.step}"] if trial.report is not None else []
    if trial.checkpoint is not None:
        milestones.append(f"checkpoint after {formatting.count(trial.checkpoint.step, 'step')}")
    milestones += [f"generation {trial.result.generations}"] if trial.result.generations > 1 else []
    return f"trial {trial.result.id}: {', '.join(milestones)}" if milestones else ""


def _step_times(view: RunView) -> Iterator[Text]:
    """Where the steps of gangs go, and which members are slow: of one gang all members, else the slow ones."""
    for trial in view.trials:
        times = trial.step_times
        if times is None or (view.total != 1 and trial.result.status is not TrialStatus.RUNNING):
            continue
        hosts = [member.host for member in trial.result.members]
        if view.total == 1:
            yield Text()
            yield from map(Text, step_lines(replace(times, slow=None), hosts))
        if times.slow is not None:
            prefix = "" if view.total == 1 else f"trial {trial.result.id}, "
            yield Text(prefix + slow_line(times.slow, hosts), style="yellow")


def _restarts(view: RunView) -> Iterator[Text]:
    """Why gangs restarted, those of the newest trials last."""
    lines = [
        (f"trial {trial.result.id}, " if view.total != 1 else "") + gang_text.restart_line(number, restart)
        for trial in view.trials
        for number, restart in enumerate(_shown_restarts(trial), 1)
    ]
    if lines:
        yield Text()
    if len(lines) > _SHOWN_RESTARTS:
        yield Text(f"{len(lines) - _SHOWN_RESTARTS} earlier restarts", style="dim")
    yield from (Text(line, style="yellow") for line in lines[-_SHOWN_RESTARTS:])


def _shown_restarts(trial: TrialView) -> Iterator[Restart]:
    """Those after a loss, and those from drained agents; not those that a rule or a larger gang has caused."""
    return (restart for restart in trial.result.restarts if restart.how not in PLANNED - OF_DRAIN)


def _failures(view: RunView) -> RenderResult:
    failed = [result for result in view.results if result.status in FAILED_OR_LOST]
    if failed:
        yield Text()
    if len(failed) > _SHOWN_FAILURES:
        yield Text(f"{len(failed) - _SHOWN_FAILURES} earlier failures", style="dim")
    yield from (failed_lines(result) for result in failed[-_SHOWN_FAILURES:])
