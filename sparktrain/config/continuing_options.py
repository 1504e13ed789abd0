"""The options of calls that continue from a run that exists; a part of the catalog of options."""

from typing import Annotated

from sparktrain.config.call_option import CallOption
from sparktrain.config.option_catalog import ConcurrencyKeywords, EnvironmentKeywords, ProgressKeywords, RunKeywords
from sparktrain.config.option_rules import ValueRule, integer
from sparktrain.config.param_values import shown
from sparktrain.config.search_options import TRIALS
from sparktrain.config.tracking_options import CallbackKeywords
from sparktrain.errors import SpecError


def checkpoint_choice(value: object, subject: str = "from_checkpoint") -> str:
    """`value` as "newest", "best" or "none"; True is the newest, False none. Raises SpecError."""
    if isinstance(value, bool):
        return "newest" if value else "none"
    if not isinstance(value, str) or value not in ("newest", "best", "none"):
        raise SpecError(f"{subject} ({shown(value)}) must be 'newest', 'best' or 'none'")
    return value


class ExtendKeywords(ConcurrencyKeywords, EnvironmentKeywords, ProgressKeywords, CallbackKeywords, total=False):
    """Options of `extend`."""

    trials: Annotated[
        int | None,
        CallOption(
            "How many trials a sampled sweep gets beside those that it has.",
            integer(1),
            panel=TRIALS,
            says="none: its space has more values",
            in_file=False,
            page="resume.md#more-trials-and-wider-spaces",
            also=("n_trials", "num_samples", "max_trials", "more"),
        ),
    ]


class RefitKeywords(RunKeywords, total=False):
    """Options of `refit`: those of `run`, and which trial of the sweep."""

    trial: Annotated[
        int | None, CallOption("Number of the trial that is trained on.", integer(0), panel=TRIALS, says="the best one")
    ]
    from_checkpoint: Annotated[
        bool | str,
        CallOption(
            "Checkpoint of the trial to start from: newest, best, or none for step 0.",
            ValueRule(checkpoint_choice, "newest|best|none"),
            default="newest",
            panel=TRIALS,
            says="newest, or step 0 where the trial has none",
            page="gangs.md#the-best-trial-longer-or-wider",
        ),
    ]
