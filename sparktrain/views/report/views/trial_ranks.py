"""The trials of a run in one order, the best first: those with a result, those stopped early, and those that diverged.

A trial that a rule has stopped has no final value, but it was compared with others at its last step: it takes the
place that it had there among those that trained further. Values of different steps are never compared.
"""

from collections.abc import Sequence

import numpy as np

from sparktrain.views.report.views.report_columns import Floats, Integers, ReportColumns
from sparktrain.views.report.views.trial_rows import TrialRow

MOST_TRIALS = 4000
"""Of more trials, an even sample."""


def ranked_trials(
    rows: Sequence[TrialRow], columns: ReportColumns, metric: str | None, mode: str
) -> tuple[TrialRow, ...]:
    """The trials that can be compared, the best first; none without a metric.

    Those with a result are in the order of their places. Trials that failed, were lost or break a constraint are not
    there.
    """
    if metric is None:
        return ()
    chosen = _sample([row for row in rows if _is_comparable(row, metric)])
    results = sorted((row for row in chosen if row.place is not None), key=lambda row: row.place or 0)
    stopped = [row for row in chosen if row.place is None and row.value is not None]
    diverged = [row for row in chosen if row.place is None and row.value is None]
    values = _StepValues(columns, metric, -1.0 if mode == "max" else 1.0)
    order = np.zeros(len(results) + len(stopped), np.int64)
    order[: len(results)] = [row.id for row in results]
    # Those that came further are in place before those that are compared with them.
    for number, row in enumerate(sorted(stopped, key=lambda row: (-(row.step or 0), row.id)), len(results)):
        place = values.place(row, order[:number])
        order[place + 1 : number + 1] = order[place:number].copy()
        order[place] = row.id
    by_id = {row.id: row for row in chosen}
    return (*(by_id[trial] for trial in order.tolist()), *diverged)


def _is_comparable(row: TrialRow, metric: str) -> bool:
    if row.place is not None:
        return True
    # NaN and infinity are null in a row: such a trial has diverged, and comes last.
    has_diverged = metric in row.metrics and row.metrics[metric] is None
    stopped = row.status == "pruned" and row.value is not None
    return stopped or (has_diverged and row.status in ("succeeded", "pruned", "failed"))


def _sample(rows: list[TrialRow]) -> list[TrialRow]:
    stride = max(1.0, len(rows) / MOST_TRIALS)
    return [rows[int(number * stride)] for number in range(min(len(rows), MOST_TRIALS))]


class _StepValues:
    """What trials had reported of the metric by a step, as losses: smaller is better."""

    def __init__(self, columns: ReportColumns, metric: str, sign: float) -> None:
        losses = sign * columns.metrics[metric] if metric in columns.metrics else np.zeros(0)
        mask = np.isfinite(losses)
        self._losses = losses[mask]
        self._trial = columns.trial[: mask.size][mask]
        self._step_of = columns.step[: mask.size][mask]
        self._sign = sign
        self._step: int | None = None
        self._by_step: tuple[Integers, Floats] = (self._trial[:0], self._losses[:0])

    def place(self, row: TrialRow, others: Integers) -> int:
        """How many of the others were better than this trial at its last step; those without a value there count."""
        assert row.value is not None
        losses = self._at(row.step, np.append(others, row.id))
        loss = losses[-1] if np.isfinite(losses[-1]) else self._sign * row.value
        return int((losses[:-1] < loss).sum())

    def _at(self, step: int | None, trials: Integers) -> Floats:
        """The newest loss of each of the trials up to the step; minus infinity where there is none."""
        if step is None or not self._losses.size:
            return np.full(trials.size, -np.inf)
        if step != self._step:
            early = self._step_of <= step
            trial = self._trial[early]
            last = np.append(trial[1:] != trial[:-1], True)[: trial.size]
            self._step = step
            self._by_step = (trial[last], self._losses[early][last])
        trial_ids, losses = self._by_step
        if not trial_ids.size:
            return np.full(trials.size, -np.inf)
        at = np.minimum(np.searchsorted(trial_ids, trials), trial_ids.size - 1)
        return np.where(trial_ids[at] == trials, losses[at], -np.inf)
