"""The options of a call about its trials, and about when they stop; a part of `option_catalog`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sparktrain.config import objectives, sampler_names, sweep_spec
from sparktrain.config.call_option import Keywords, option
from sparktrain.config.objectives import Constraint, Objective
from sparktrain.config.option_rules import SWITCH, TIME, ValueRule, integer
from sparktrain.config.panels import TRIALS
from sparktrain.config.stoppers import AnyStopRule, StopRule, rules_of
from sparktrain.config.warm_sources import WarmSource, warm_sources

T = TypeVar("T")


def _or_none(check: Callable[[Any, str], tuple[T, ...]]) -> Callable[[Any, str], tuple[T, ...]]:
    """`check`, which takes None for an empty tuple."""
    return lambda value, subject: () if value is None else check(value, subject)


class SearchKeywords(Keywords):
    """Options about the trials of a sweep."""

    trials: int | None = option(
        "Most trials to run.",
        integer(1),
        panel=TRIALS,
        default_text="all",
        details="With `repeats` or `folds`: most sets of parameters to try.",
        also=("n_trials", "num_samples", "max_evals", "max_trials"),
    )
    repeats: int = option(
        "Trials of each set of parameters, each with its own seed; sets are compared by their means.",
        integer(1),
        default=1,
        panel=TRIALS,
        page="repeats.md",
        also=("n_repeats", "num_repeats", "executions_per_trial", "replications", "n_seeds"),
    )
    folds: int = option(
        "Trials of each set of parameters and repeat, one for each fold of the data: see `ctx.fold`.",
        integer(1),
        default=1,
        panel=TRIALS,
        default_text="1, no cross-validation",
        page="repeats.md",
        also=("cv", "n_folds", "nfolds", "n_splits", "num_folds"),
    )
    racing: bool = option(
        "Whether to skip the remaining repeats and folds of a set of parameters that can no longer become the best.",
        SWITCH,
        default=True,
        panel=TRIALS,
        default_text="on",
        page="repeats.md#racing",
        also=("race",),
    )
    sampler: Any | None = option(
        "What proposes trials: random, tpe, gp, cmaes, qmc, nsgaii, grid, or a sampler of Optuna or your own.",
        ValueRule(sampler_names.sampler, "NAME"),
        panel=TRIALS,
        default_text="tpe for a space with distributions, grid for lists",
        flag_doc="What proposes trials: random, tpe, gp, cmaes, qmc, nsgaii or grid (default: tpe for a space with "
        "distributions, grid for lists).",
        page="search.md",
        also=("algorithm", "search_alg", "algo", "tuner"),
    )
    other_metrics: tuple[Objective, ...] = option(
        "Metrics that count beside `metric`, with their better ends: the result has a Pareto front.",
        ValueRule(
            _or_none(objectives.objectives),
            "METRIC",
            repeats=True,
            takes=Mapping[str, str | None] | Sequence[str] | None,
        ),
        default=(),
        panel=TRIALS,
        default_text="none: one metric decides",
        flag_doc="A metric that counts beside --metric, such as latency_ms:min. Repeatable.",
        details='A dict such as `{"latency_ms": "min"}`; None stands for the end that the name implies.',
        page="search.md#several-metrics",
        also=("objectives", "directions", "metrics"),
    )
    constraints: tuple[Constraint, ...] = option(
        "Bounds of metrics: a trial that violates one is never the best.",
        ValueRule(_or_none(objectives.constraints), "BOUND", repeats=True, takes=Sequence[str] | None),
        default=(),
        panel=TRIALS,
        default_text="none",
        flag="--constraint",
        flag_doc="Bound of a metric, such as 'latency_ms <= 20'. Repeatable.",
        page="search.md#constraints",
        also=("constraints_func", "metric_constraints"),
    )
    target: float | None = option(
        "End the sweep once a trial reaches this value of the metric.",
        ValueRule(sweep_spec.finite, "NUMBER"),
        panel=TRIALS,
        default_text="never",
        page="stopping.md#the-whole-sweep",
        also=("loss_threshold",),
    )
    plateau: int | None = option(
        "End the sweep when this many trials in a row have not improved the best result.",
        integer(1),
        panel=TRIALS,
        default_text="never",
        page="stopping.md#the-whole-sweep",
        also=("early_stop_fn",),
    )
    budget: float | None = option(
        "End the sweep when its slots have trained for this time in total, such as 100h.",
        TIME,
        default_text="never",
        panel=TRIALS,
        page="stopping.md#the-whole-sweep",
        also=("time_budget_s",),
    )
    warm_start: tuple[WarmSource, ...] | None = option(
        "Former runs or a table of results for the sampler to learn from, or points to try first.",
        ValueRule(warm_sources, "PATH", repeats=True, takes=Any),
        panel=TRIALS,
        default_text="none",
        flag_doc="Directory of a former run, from which the sampler learns. Repeatable.",
        details="Pass a directory, a result, a DataFrame or a dict of parameters, or a list of them.",
        page="search.md#from-former-results",
        also=("points_to_evaluate", "enqueue", "initial_points", "x0", "baseline", "trials_from"),
    )
    stopper: tuple[AnyStopRule, ...] = option(
        "Rule that stops trials which cannot win: asha, hyperband, median, patience, threshold or wilcoxon.",
        ValueRule(rules_of, "RULE", repeats=True, takes=str | StopRule | Sequence[str | StopRule] | None),
        default=(),
        panel=TRIALS,
        default_text="none: every trial runs to its end",
        flag_doc="Rule that stops trials which cannot win, such as asha or asha:most=27,eta=3. Repeatable.",
        details="A rule looks at what trials report with `ctx.report`. With several rules, a trial stops when any "
        "of them stops it; `st.ASHA(most=27)` and others have options.",
        page="stopping.md",
        also=("scheduler", "pruner", "early_stopping", "early_stopping_policy"),
    )
