"""The command that replays the trials of a run on other slots and with other stoppers and samplers. Wiring alone."""

from typing import Annotated

import typer

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import Debug, option, with_help
from sparktrain.cli.inspect_commands import AsJson
from sparktrain.config.metric_names import mode_of
from sparktrain.config.panels import SHOWN
from sparktrain.config.param_values import shown
from sparktrain.config.sampler_names import sampler as named_sampler
from sparktrain.config.stoppers import rules_of
from sparktrain.errors import SpecError

SIMULATE_EXAMPLES = """\
What the sweep would have cost on 2, 8 and 64 slots, whole and with two rules:
  sparktrain simulate hdfs:///runs/mnist --slots 2,8,64 --stopper asha --stopper median
What four samplers would have found with 50 of its trials:
  sparktrain simulate hdfs:///runs/mnist --slots 8 --sampler tpe --sampler random --sampler gp --sampler qmc --trials 50
From a file with the columns trial, step, seconds and the metric:
  sparktrain simulate durations.csv --slots 64 --stopper asha:most=27
"""


@with_help(SIMULATE_EXAMPLES)
def simulate(
    source: Annotated[str, typer.Argument(metavar="DIR|FILE.csv", help="A run directory, or a file of curves.")],
    slots: Annotated[str, option(SHOWN, "N,N", "Numbers of slots (default: 1,4,16).", "--slots")] = "1,4,16",
    stopper: Annotated[
        list[str] | None, option(SHOWN, "RULE", "A rule to compare with none. Repeatable.", "--stopper")
    ] = None,
    sampler: Annotated[
        list[str] | None,
        option(SHOWN, "NAME", "A sampler to compare: tpe, random, gp or qmc. Repeatable.", "--sampler"),
    ] = None,
    trials: Annotated[int | None, option(SHOWN, "N", "How many of the trials run (default: all).", "--trials")] = None,
    seeds: Annotated[int, option(SHOWN, "N", "Simulations of each sampler (default: 5).", "--seeds")] = 5,
    metric: Annotated[
        str | None, option(SHOWN, "NAME", "Metric to compare by (default: the run's).", "--metric")
    ] = None,
    mode: Annotated[str | None, option(SHOWN, "max|min", "Better end of the metric.", "--mode")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Replay the trials of a run in virtual time: the cost and the find of other slots, stoppers and samplers."""

    def show(out: Output) -> int:
        from rich.console import Group

        from sparktrain.ops.simulation.comparison import Comparison
        from sparktrain.ops.simulation.curves import from_csv, from_run

        numbers = _slots(slots)
        rules = rules_of(stopper or (), "--stopper")
        chosen = None if mode is None else mode_of(None, mode, "--mode")
        read = from_csv if source.endswith(".csv") else from_run
        _check_counts(("--trials", 1 if trials is None else trials), ("--seeds", seeds))
        names = [named_sampler(sampler_name, "--sampler") for sampler_name in sampler or ()]
        comparison = Comparison(read(source, metric, chosen), numbers, rules, names, trials, seeds)
        if as_json:
            out.document(comparison.as_json())
        else:
            out.show(Group(*comparison.lines(), comparison.table()))
        return 0

    return common.look(show, as_json=as_json, debug=debug)


def _slots(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= _MOST_SLOTS for part in parts):
        raise SpecError(
            f"--slots ({shown(text)}) must be numbers from 1 to {_MOST_SLOTS:,} with commas, such as 2,8,64"
        )
    return [int(part) for part in parts]


def _check_counts(*counts: tuple[str, int]) -> None:
    for flag, number in counts:
        if number < 1:
            raise SpecError(f"{flag} ({number}) must be a whole number from 1")


_MOST_SLOTS = 100_000
