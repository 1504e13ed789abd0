"""Simulations of one sweep side by side: as a table for people, and as JSON."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from rich.table import Table

from sparktrain.base import formatting
from sparktrain.config.stoppers import PBT, AnyStopRule
from sparktrain.display.parts import table
from sparktrain.errors import SpecError
from sparktrain.ops.simulation.curves import Recorded
from sparktrain.ops.simulation.recorded_search import Order, searches
from sparktrain.ops.simulation.virtual_run import SimulatedRun, VirtualRun

SEEDS = 5
"""How often a sampler is simulated by default, each time with another seed: one search alone is luck."""


class Alternative(NamedTuple):
    """One way to run the sweep."""

    slots: int
    stopper: tuple[AnyStopRule, ...] = ()
    sampler: str | None = None
    """None for the order in which the trials are recorded."""


class Simulated(NamedTuple):
    """The simulations of one alternative: one, or for a sampler one for each seed."""

    choice: Alternative
    runs: tuple[SimulatedRun, ...]

    def mean(self, of: Callable[[SimulatedRun], float | None]) -> float | None:
        """The mean over the runs that have the figure."""
        values = [value for run in self.runs if (value := of(run)) is not None]
        return fmean(values) if values else None

    @property
    def busy_s(self) -> float:
        """Seconds of slots that trained."""
        return fmean(run.busy_s for run in self.runs)


class Comparison:
    """The same trials on each number of slots, without a stopper and with each of several, in several orders."""

    def __init__(
        self,
        recorded: Recorded,
        slots: Sequence[int],
        stoppers: Sequence[AnyStopRule],
        samplers: Sequence[str] = (),
        trials: int | None = None,
        seeds: int = SEEDS,
    ) -> None:
        """Simulates all of them: a second for some thousand trials each, more for the suggestions of samplers.

        `trials` is how many of the recorded trials run, all by default. Raises SpecError for what cannot be simulated.
        """
        self.recorded = recorded
        self._trials = len(recorded.curves) if trials is None else min(trials, len(recorded.curves))
        for rule in stoppers:
            if isinstance(rule, PBT):
                raise SpecError(
                    f"{rule} changes parameters while trials run, and a simulation knows the curves of the run alone: "
                    "pass another rule"
                )
        rules: list[tuple[AnyStopRule, ...]] = [(), *((stopper,) for stopper in stoppers)]
        choices = [Alternative(number, rule, name) for number in slots for rule in rules for name in (None, *samplers)]
        self.simulated = [Simulated(choice, self._simulated(choice, seeds)) for choice in choices]

    def lines(self) -> list[str]:
        """What the reader must know beside the table."""
        curves = self.recorded.curves
        cut = sum(not curve.is_complete for curve in curves)
        reports = sum(len(curve.points) for curve in curves)
        notes = [
            f"{self.recorded.name}: {formatting.count(len(curves), 'trial')}, "
            f"{formatting.count(reports, 'report')} of {self.recorded.metric}"
        ]
        if self._trials < len(curves):
            notes.append(f"each row runs {self._trials} of them")
        if cut:
            notes.append(
                f"{formatting.count(cut, 'trial')} of them had been stopped early: here they end at the same step, so "
                "that rows which stop fewer trials are too low"
            )
        if any(alternative.choice.sampler for alternative in self.simulated):
            seeds = max(len(alternative.runs) for alternative in self.simulated)
            notes.append(
                "a sampler gets the recorded trial nearest to what it asks for; its rows are means over "
                f"{formatting.count(seeds, 'seed')}"
            )
        return notes

    def table(self) -> Table:
        """A row for each alternative."""
        sampled = any(alternative.choice.sampler for alternative in self.simulated)
        grid = table(
            ("slots", "right"), ("stopper", "left"), *((("sampler", "left"),) if sampled else ()), ("time", "right"),
            ("slot-hours", "right"), ("of all", "right"), ("stopped", "right"), (self.recorded.metric, "right"),
            ("best after", "right"), ("best trial", "right"),
        )  # fmt: skip
        for row in self.simulated:
            baseline = self._baseline(row)
            value = row.mean(best_value)
            found_s = row.mean(lambda run: run.found_s)
            grid.add_row(
                str(row.choice.slots),
                ", ".join(map(str, row.choice.stopper)) or "none",
                *((row.choice.sampler or "as recorded",) if sampled else ()),
                formatting.duration(row.mean(lambda run: run.seconds) or 0.0),
                f"{row.busy_s / 3600:.2f}",
                f"{100 * row.busy_s / baseline.busy_s:.0f} %" if baseline.busy_s else "",
                f"{row.mean(lambda run: run.pruned) or 0:.3g}",
                "" if value is None else formatting.number(value),
                "" if found_s is None else formatting.duration(found_s),
                self._best_text(row, baseline),
            )
        return grid

    def as_json(self) -> dict[str, Any]:
        """The same for programs: one of `runs` for each alternative and seed."""
        return {
            "version": 1,
            "name": self.recorded.name,
            "metric": self.recorded.metric,
            "mode": self.recorded.mode,
            "trials": self._trials,
            "runs": [
                {
                    "slots": alternative.choice.slots,
                    "stopper": [str(rule) for rule in alternative.choice.stopper],
                    "sampler": alternative.choice.sampler,
                    "seed": seed if alternative.choice.sampler else None,
                    "seconds": run.seconds,
                    "slot_seconds": run.busy_s,
                    "pruned": run.pruned,
                    "best": self._best(run),
                    "value": best_value(run),
                    "best_after": run.found_s,
                }
                for alternative in self.simulated
                for seed, run in enumerate(alternative.runs)
            ],
        }

    def _simulated(self, choice: Alternative, seeds: int) -> tuple[SimulatedRun, ...]:
        recorded = self.recorded
        orders: list[Order | None] = [None]
        if choice.sampler is not None:
            maximize = recorded.mode == "max"
            orders = [*searches(recorded.cases, choice.sampler, recorded.metric, maximize, self._trials, seeds)]
        return tuple(
            VirtualRun(
                recorded.curves, choice.slots, recorded.metric, recorded.mode, choice.stopper,
                order=order, trials=self._trials,
            ).run()
            for order in orders
        )  # fmt: skip

    def _baseline(self, alternative: Simulated) -> Simulated:
        """The same on as many slots as recorded: without a stopper and another sampler."""
        return next(
            candidate for candidate in self.simulated if candidate.choice == Alternative(alternative.choice.slots)
        )

    def _best(self, run: SimulatedRun) -> int | str | None:
        return None if run.best is None else self.recorded.names[run.trials[run.best].recorded]

    def _best_of_all(self) -> int | str | None:
        recorded = self.recorded
        sign = -1.0 if recorded.mode == "max" else 1.0
        ends = [(sign * curve.last, name) for curve, name in zip(recorded.curves, recorded.names, strict=True)]
        return min((end for end in ends if math.isfinite(end[0])), default=(0.0, None), key=lambda end: end[0])[1]

    def _best_text(self, alternative: Simulated, baseline: Simulated) -> str:
        names = [name for run in alternative.runs if (name := self._best(run)) is not None]
        if len(alternative.runs) > 1:
            best_name = self._best_of_all()
            return (
                f"{best_name} in {sum(name == best_name for name in names)} of {len(alternative.runs)}" if names else ""
            )
        return "".join(f"{name}{'' if name == self._best(baseline.runs[0]) else ' (another)'}" for name in names)


def best_value(run: SimulatedRun) -> float | None:
    """The last value of the best trial; None without one."""
    return None if run.best is None else run.trials[run.best].value
