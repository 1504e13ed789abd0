"""Rows of trials, and their reports, as the views of a report take them."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparktrain.views.report.views.report_columns import ReportColumns
from sparktrain.views.report.views.trial_rows import TrialRow


def row(trial: int, status: str, value: float | None, place: int | None = None, **more: Any) -> TrialRow:
    return TrialRow(id=trial, status=status, value=value, place=place, metrics={"loss": value}, **more)


def columns(curves: Mapping[int, Sequence[float]]) -> ReportColumns:
    """The loss of each trial at the steps 1, 2, 3 ..."""
    entries = [(trial, step, loss) for trial, losses in sorted(curves.items()) for step, loss in enumerate(losses, 1)]
    trial, step, loss = zip(*entries, strict=True)
    return ReportColumns(np.array(trial, np.int64), np.array(step, np.int64), {"loss": np.array(loss, np.float64)})


def drawn(number: int, seed: int) -> list[dict[str, Any]]:
    """Parameters at random: `lr` decides most, `units` less, and the others nothing."""
    chance = random.Random(seed)
    return [
        {
            "lr": 10 ** chance.uniform(-5, -1),
            "units": chance.randint(16, 256),
            "act": chance.choice(["relu", "gelu", "tanh"]),
            "dropout": chance.uniform(0, 0.5),
        }
        for _ in range(number)
    ]


def loss_of(params: Mapping[str, Any]) -> float:
    return float(0.1 + (math.log10(params["lr"]) + 2.5) ** 2 * 0.3 + (params["units"] - 90) ** 2 / 60_000)


def ranked(number: int, seed: int = 1, stopped: int = 0) -> list[TrialRow]:
    """Trials with these parameters, the best first; the last `stopped` of them were stopped by a rule."""
    cases = sorted(drawn(number, seed), key=loss_of)
    rows = []
    for trial, params in enumerate(cases):
        is_stopped = trial >= number - stopped
        place = None if is_stopped else trial
        rows.append(row(trial, "pruned" if is_stopped else "succeeded", loss_of(params), place, params=params))
    return rows
