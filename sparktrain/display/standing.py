"""The counts and the best trial of a run, for the driver's live display and for `sparktrain status` alike."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display import parts
from sparktrain.display.parts import STYLES
from sparktrain.display.progress import RunStanding
from sparktrain.runs.view import RunView
from sparktrain.state.trial import TrialStatus


def of_view(view: RunView) -> RunStanding:
    """A run as its directory shows it."""
    count = view.counts
    best = view.leader
    return RunStanding(
        total=view.total, done=view.done, running=count.get(TrialStatus.RUNNING, 0),
        queued=count.get(TrialStatus.QUEUED, 0), failed=count.get(TrialStatus.FAILED, 0),
        lost=count.get(TrialStatus.LOST, 0), stopped=count.get(TrialStatus.STOPPED, 0),
        pruned=count.get(TrialStatus.PRUNED, 0), paused=count.get(TrialStatus.PAUSED, 0), metric=view.spec.metric,
        best=None if best is None or view.spec.metric is None else (best.id, best.metrics[view.spec.metric]),
        replicas=view.spec.replication.size,
    )  # fmt: skip


def counts(name: str, of: RunStanding, running: str | None = "running", width: int | None = None) -> Text:
    """The counts of trials after the name of the run, if any; without those that wait where `width` has no room.

    `running` follows the number that run; None leaves out these, and those that wait.
    """
    # At 60 columns an ellipsis hid how many trials of a large sweep had failed: those that wait give way to them.
    line = _counts(name, of, running, short=False)
    return line if width is None or line.cell_len <= width else _counts(name, of, running, short=True)


def _counts(name: str, of: RunStanding, running: str | None, *, short: bool) -> Text:
    line = Text(f"{formatting.plain(name)}  " if name else "", style="bold" if name else "")
    total = "" if of.total is None else f"/{of.total}" if short else f" of {of.total}"
    # A stopped trial has no result: such a run counts the trials that a resume does not run.
    finished = of.done
    word = "done"
    if of.stopped:
        finished = of.done - of.failed - of.lost - of.stopped - of.pruned
        word = "succeeded"
    noun = "" if short else " trial" if (of.total or finished) == 1 else " trials"
    line.append(f"{finished}{total}{noun} {word}", "not bold")
    if running is not None:
        line.append(f"  {of.running} {running}", "not bold")
        line.append("" if short else "".join(f"  {part}" for part in _waiting(of)), "not bold")
    for count, status in (
        (of.pruned, TrialStatus.PRUNED),
        (of.failed, TrialStatus.FAILED),
        (of.lost, TrialStatus.LOST),
        (of.stopped, TrialStatus.STOPPED),
    ):
        if count:
            line.append("  ").append(f"{count} {status}", style=STYLES[status])
    return line


def _waiting(of: RunStanding) -> list[str]:
    """The trials that wait, in the words of the page: known ones are queued, those not proposed yet are to come."""
    parts = [f"{of.queued} queued"]
    parts += [f"{of.paused} paused"] if of.paused else []
    parts += [f"{of.to_come} to come"] if of.to_come else []
    return parts


def best_line(of: RunStanding, params: Mapping[str, Any], label: str) -> Text:
    """The best trial after `label`; `params` are its parameters, the most important first."""
    line = Text(f"{label}  ")
    if of.best is None:
        return line.append("no trial has succeeded yet", style="dim")
    line.append(parts.metrics({of.metric or "": of.best[1]}), style="bold green")
    return line.append(f"  {of.best_name}").append(f"  {formatting.params(params)}", style="dim")


def best_part(of: RunStanding) -> list[str]:
    """The best trial as a part of a status line; none before a trial has succeeded."""
    if of.best is None or of.metric is None:
        return []
    return [f"best {parts.metrics({of.metric: of.best[1]})} in {of.best_name}"]
