"""Simulations of one sweep side by side: as a table for people, and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from sparktrain import formatting
from sparktrain.config.stoppers import PBT, AnyStopRule
from sparktrain.display.parts import table
from sparktrain.errors import SpecError
from sparktrain.simulation.curves import Recorded
from sparktrain.simulation.virtual_run import SimulatedRun, VirtualRun


class Comparison:
    """The same trials on each number of slots, without a stopper and with each of several."""

    def __init__(self, recorded: Recorded, slots: Sequence[int], stoppers: Sequence[AnyStopRule]) -> None:
        """Simulates all of them: a second for some thousand trials each."""
        self.recorded = recorded
        for rule in stoppers:
            if isinstance(rule, PBT):
                raise SpecError(
                    f"{rule} changes parameters while trials run, and a simulation knows the curves of the run alone: "
                    "pass another rule"
                )
        choices: list[tuple[AnyStopRule, ...]] = [(), *((each,) for each in stoppers)]
        self.runs = [_simulated(recorded, number, chosen) for number in slots for chosen in choices]

    def lines(self) -> list[str]:
        """What the reader must know beside the table."""
        curves = self.recorded.curves
        cut = sum(not curve.whole for curve in curves)
        reports = sum(len(curve.points) for curve in curves)
        found = [
            f"{self.recorded.name}: {formatting.count(len(curves), 'trial')}, "
            f"{formatting.count(reports, 'report')} of {self.recorded.metric}"
        ]
        if cut:
            found.append(
                f"{formatting.count(cut, 'trial')} of them had been stopped early: here they end at the same step, so "
                "that rows which stop fewer trials are too low"
            )
        return found

    def table(self) -> Table:
        """A row for each simulation."""
        grid = table(
            ("slots", "right"), ("stopper", "left"), ("time", "right"), ("slot-hours", "right"), ("of all", "right"),
            ("stopped", "right"), (self.recorded.metric, "right"), ("best trial", "right"),
        )  # fmt: skip
        for run in self.runs:
            whole = self._whole(run)
            grid.add_row(
                str(run.slots),
                ", ".join(map(str, run.stopper)) or "none",
                formatting.duration(run.seconds),
                f"{run.busy_s / 3600:.2f}",
                f"{100 * run.busy_s / whole.busy_s:.0f} %" if whole.busy_s else "",
                str(run.pruned),
                "" if run.best is None else formatting.number(run.trials[run.best].value),
                "" if run.best is None else f"{run.best}{'' if run.best == whole.best else ' (another)'}",
            )
        return grid

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "version": 1,
            "name": self.recorded.name,
            "metric": self.recorded.metric,
            "mode": self.recorded.mode,
            "trials": len(self.recorded.curves),
            "runs": [
                {
                    "slots": run.slots,
                    "stopper": [str(rule) for rule in run.stopper],
                    "seconds": run.seconds,
                    "slot_seconds": run.busy_s,
                    "pruned": run.pruned,
                    "best": run.best,
                    "value": None if run.best is None else run.trials[run.best].value,
                }
                for run in self.runs
            ],
        }

    def _whole(self, run: SimulatedRun) -> SimulatedRun:
        """The same on as many slots without a stopper."""
        return next(each for each in self.runs if each.slots == run.slots and not each.stopper)


def _simulated(recorded: Recorded, slots: int, stopper: tuple[AnyStopRule, ...]) -> SimulatedRun:
    return VirtualRun(recorded.curves, slots, recorded.metric, recorded.mode, stopper).run()
