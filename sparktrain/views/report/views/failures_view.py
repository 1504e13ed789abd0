"""Why trials failed: alike failures together, the most frequent first, with the last lines of a log."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.runs.failure_table import log_of
from sparktrain.runs.trial_result import FAILED_OR_LOST, TrialResult
from sparktrain.views.report.views.trial_rows import LONGEST_ERROR

MOST_KINDS = 40
MOST_TRIALS = 200
_MOST_LINES = 30
_LONGEST_LINE = 500
_LONGEST_TRACEBACK = 6000


class FailureText(Struct, frozen=True, omit_defaults=True):
    """Failures with the same summary."""

    kind: str
    """One of `FailureKind`."""
    summary: str
    count: int
    trials: tuple[int, ...]
    """The first 200 of them."""
    first: int
    """The trial that has the texts below."""
    host: str | None = None
    rank: int | None = None
    loss: str | None = None
    """What the cluster reported."""
    traceback: str = ""
    log_tail: tuple[str, ...] = ()
    """The last lines that the process printed."""
    log: str | None = None
    """The path of the log."""


class FailuresView(Struct, frozen=True, omit_defaults=True):
    """The failures of a run."""

    trials: int
    """Trials that failed or were lost."""
    kinds: tuple[FailureText, ...] = ()
    left_out: int = 0
    """Kinds beyond the first 40."""


def failures_view(trials: Sequence[TrialResult]) -> FailuresView:
    """The trials that failed or were lost."""
    groups: dict[tuple[str, str], list[TrialResult]] = {}
    failed = [trial for trial in trials if trial.status in FAILED_OR_LOST and trial.error is not None]
    for trial in failed:
        assert trial.error is not None
        groups.setdefault((str(trial.error.kind), trial.error.summary), []).append(trial)
    ranked = sorted(groups.values(), key=lambda group: (-len(group), group[0].id))
    return FailuresView(len(failed), tuple(map(_text, ranked[:MOST_KINDS])), max(0, len(ranked) - MOST_KINDS))


def _text(group: Sequence[TrialResult]) -> FailureText:
    first = next((trial for trial in group if trial.error is not None and trial.error.log_tail), group[0])
    error = first.error
    assert error is not None
    return FailureText(
        kind=str(error.kind),
        summary=error.summary[: 10 * LONGEST_ERROR],
        count=len(group),
        trials=tuple(trial.id for trial in group[:MOST_TRIALS]),
        first=first.id,
        host=error.host or first.host,
        rank=error.rank,
        loss=None if error.loss is None else str(error.loss),
        traceback=error.traceback[-_LONGEST_TRACEBACK:],
        log_tail=tuple(line[:_LONGEST_LINE] for line in error.log_tail[-_MOST_LINES:]),
        log=log_of(first, error),
    )
