"""Every option of every call, defined once.

A class below is what one call takes by name, and its instance has the checked values. Signature and docstring of the
call, the types in `call_arguments` that editors show for it, the flags of the command line, the settings of a parameter
file, the checks of values and the tables in docs/ are made from it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sparktrain.config import environment, gang_spec, metric_names, sweep_spec
from sparktrain.config.call_option import Keywords, option
from sparktrain.config.data_sources import Source, named_paths, sources_of
from sparktrain.config.gang_options import GANG, AveragingKeywords, GangKeywords
from sparktrain.config.metric_names import Mode
from sparktrain.config.option_rules import (
    CHANGED,
    FLAG,
    MEMORY,
    MODULES,
    PLACE,
    TEXT,
    TIME,
    WAIT,
    ValueRule,
    checkpoint_choice,
    integer,
)
from sparktrain.config.search_options import TRIALS, SearchKeywords
from sparktrain.config.store_address import DEFAULT_DIR, STORE_TIMEOUT_S
from sparktrain.config.tracking_options import CallbackKeywords, TrackingKeywords

BackendName = Literal["auto", "horovod", "tensorflow", "parameter-server", "none"]

DEFAULT_PRELOAD = ("numpy", "keras", "tensorflow")
"""What the zygotes of a pool import unless the user names modules; a library that is not installed is skipped."""
CODE_BYTES = 60 * 2**20
METRIC = "The metric"
RUN = "The run"
RESUMING = "If the run exists already"
SPARK = "Spark"
"""Panels of the command line's help."""


def _metric(*, required: bool) -> Any:
    return option(
        "Entry of the function's result that trials are compared by.",
        ValueRule(metric_names.metric_name, "NAME"),
        panel=METRIC,
        says="none: no trial is best",
        page="results.md",
        required=required,
    )


def _gpu_memory() -> int | None:
    return option(
        "Memory of one GPU for each process that trains, such as 8GiB; several processes share a GPU where it fits.",
        MEMORY,
        panel=SPARK,
        says="all of its GPUs",
        page="gpus.md#slices-of-a-gpu",
        also=("gpu_mem", "gpu_memory_limit", "memory_limit", "gpu_fraction"),
    )


class DataKeywords(Keywords):
    """Options of all calls that give trials data."""

    data: Mapping[str, Source] = option(
        "Data for `ctx.dataset(name)`: Spark DataFrames, tables, or files, by name.",
        ValueRule(sources_of, "NAME=PATH", named_paths, repeats=True, takes=Mapping[str, Any]),
        default={},
        says="none",
        flag_doc="Files for ctx.dataset(NAME): Parquet, Arrow or TFRecord, such as train=hdfs:///x/*.parquet. "
        "Repeatable.",
        details="A DataFrame is written once into the run directory before training starts.",
        page="data.md",
    )
    data_cache: str | None = option(
        "Local directory on executor hosts where data is kept that was read once.",
        PLACE,
        says="the temporary directory",
        page="data-reference.md#read-once-for-each-host",
    )
    data_cache_limit: int | None = option(
        "Bytes that this directory may take on each host, for the data of all runs.",
        integer(1),
        says="a quarter of the free disk",
        page="data-reference.md#read-once-for-each-host",
    )


class EnvironmentKeywords(Keywords):
    """Options of all calls that start trials."""

    env: Mapping[str, str] = option(
        "Variables of the trials' environment: a value by name.",
        ValueRule(environment.variables, "NAME[=VALUE]", repeats=True, takes=Mapping[str, str | float]),
        default={},
        says="none",
        flag_doc="Variable for trials; NAME alone takes its value here, which `ps` does not show. Repeatable.",
        page="code-and-environment.md#the-environment-of-a-trial",
    )
    forward_env: tuple[str, ...] = option(
        "Names of the driver's variables that trials get, such as WANDB_*.",
        ValueRule(environment.patterns, "N1,N2", takes=Sequence[str]),
        default=(),
        says="none",
        flag=None,
        page="code-and-environment.md#the-environment-of-a-trial",
    )


class ProgressKeywords(TrackingKeywords):
    """Options of all calls that show progress, and pass it on."""

    progress: bool = option("Show progress.", FLAG, default=True, flag=None, in_file=False, page="results.md")
    tensorboard: bool = option("Serve TensorBoard while the run lasts.", FLAG, default=False, page="tensorboard.md")
    page: bool = option("Serve a page of the run while it lasts.", FLAG, default=False, page="page.md")
    retry_failed: bool = option(
        "Retry failed trials, too, with the code as it is now.",
        FLAG,
        default=False,
        panel=RESUMING,
        in_file=False,
        page="resume.md",
    )


class DirectoryKeywords(Keywords):
    """Options of calls that create a run directory."""

    mode: Mode | None = option(
        "Better end of the metric: max or min.",
        ValueRule(metric_names.mode, "max|min"),
        panel=METRIC,
        says="by the name of the metric",
        details="A loss or an error is better when it is lower, an accuracy or a score when it is higher; a name that "
        "shows neither needs `mode`.",
        page="results.md#which-end-is-best",
    )
    backend: gang_spec.Backend | Literal["auto"] = option(
        "What connects the members of a gang: horovod, tensorflow, parameter-server, none, or auto.",
        ValueRule(gang_spec.backend_or_auto, "NAME", takes=BackendName | gang_spec.Backend),
        default="auto",
        panel=GANG,
        details="auto takes Horovod where driver and executors have it, else TensorFlow's collectives; with none each "
        "member runs by itself, and knows its rank.",
        page="gangs.md#which-backend-when",
    )
    name: str | None = option(
        "Name of the run and of its directory.",
        ValueRule(sweep_spec.run_name, "NAME"),
        says="function and time",
        details="The same `dir` and `name` again resume the run.",
        page="resume.md",
    )
    dir: str = option("Where run directories are made: a path or a URL.", PLACE, default=DEFAULT_DIR, page="stores.md")
    seed: int | None = option(
        "Seed of the run; each `ctx.seed` follows from it and the trial's id.",
        ValueRule(sweep_spec.sweep_seed, "N", integer(0).read),
        says="at random",
    )


class LimitKeywords(Keywords):
    """Options of these calls about time, sizes, changes and GPUs."""

    timeout: float | None = option(
        "Stop the run after this time: seconds, or as in 90s, 5m, 1h30m.", TIME, says="never"
    )
    start_timeout: float = option("Wait this long for agents while there are none.", WAIT, default=300.0, says="5m")
    store_timeout: float = option(
        "Longest outage of its store that the run outlives.",
        WAIT,
        default=STORE_TIMEOUT_S,
        says="5m",
        details="After it the run ends, and can be resumed.",
        page="stores.md",
    )
    max_retries: int = option(
        "Retries of a trial, or of the gang of a run, after a process, agent or executor was lost.",
        integer(0),
        default=3,
        page="training-function.md",
    )
    preload: tuple[str, ...] | None = option(
        "Modules that are imported before training starts.", MODULES, says="what the function uses"
    )
    log_limit: int = option(
        "Bytes of each member's log that are kept.", integer(sweep_spec.MIN_LOG_BYTES), default=2**30, says="1 GiB"
    )
    code_limit: int = option(
        "Most bytes of the pickled function, with its modules and captured values.",
        integer(1),
        default=CODE_BYTES,
        says="60 MiB",
        page="code-and-environment.md#how-your-code-travels",
    )
    data_version: str | None = option(
        "Your name for the data: a run is not resumed with data of another version.",
        TEXT,
        says="none",
        page="resume.md",
    )
    allow_changed: tuple[str, ...] = option(
        "What may differ from before: code, space, data, metric, seed or gang.",
        CHANGED,
        default=(),
        says="nothing",
        panel=RESUMING,
        in_file=False,
        page="resume.md",
    )
    gpus: int = option("GPUs for each process that trains.", integer(0), default=0, panel=SPARK, page="gpus.md")
    gpu_memory: int | None = _gpu_memory()


class CommonKeywords(ProgressKeywords, EnvironmentKeywords, DataKeywords, LimitKeywords, DirectoryKeywords):
    """Options of sweeps and of runs of one gang."""


class TrialsKeywords(SearchKeywords, AveragingKeywords, CommonKeywords):
    """Options of all sweeps."""

    trial_timeout: float | None = option("End a trial after this time; it counts as failed.", TIME, says="never")
    hang_timeout: float | None = option(
        "End a trial that has reported steps, and reports none for this time.",
        TIME,
        says="120s in a fit with ctx.keras_callbacks(), else never",
    )
    max_failures: int | Literal["auto"] | None = option(
        "End the sweep when this many trials have failed; none: never.",
        ValueRule(sweep_spec.failures, "N"),
        default="auto",
        says="when the first trials all fail alike",
        details="The first trials are two for each slot, and at least three.",
        page="training-function.md#when-the-first-trials-fail",
    )
    workers_per_trial: int = option(
        "Members of the gang that trains each trial.", integer(1), default=1, panel=GANG, page="gangs.md"
    )


class PoolLaunchKeywords(CallbackKeywords, TrialsKeywords):
    """Options of `Pool.launch`."""

    metric: str | None = _metric(required=False)


class PoolSweepKeywords(CallbackKeywords, TrialsKeywords):
    """Options of `Pool.sweep`."""

    metric: str = _metric(required=True)


class ConcurrencyKeywords(Keywords):
    """Options of sweeps that start their own agents."""

    max_concurrent_trials: int | None = option(
        "Most trials that train at a time.",
        integer(1),
        panel=SPARK,
        says="as many as the session has slots for",
        details="A trial takes as many slots as its gang has members, so that n trials of k members take n * k; where "
        "the session has fewer, fewer trials train at a time.",
        page="sessions.md",
        also=("agents", "max_parallel_trials", "n_jobs", "parallelism"),
    )


class StudyKeywords(ConcurrencyKeywords, TrialsKeywords):
    """Options of `optuna.optimize`, which has callbacks of its own."""


class LaunchKeywords(ConcurrencyKeywords, PoolLaunchKeywords):
    """Options of `launch`, and of the command line's `sweep`."""


class SweepKeywords(ConcurrencyKeywords, PoolSweepKeywords):
    """Options of `sweep`."""


class PoolRunKeywords(CallbackKeywords, GangKeywords, CommonKeywords):
    """Options of `Pool.run`."""

    metric: str | None = option(
        "Entry of the function's result that checkpoints are compared by.",
        ValueRule(metric_names.metric_name, "NAME"),
        panel=METRIC,
        says="none: the newest is kept",
    )


class StandbyKeywords(Keywords):
    """Options of runs of one gang that start their own agents."""

    agents: int | None = option(
        "Agents to start for the one gang of a run; those beyond its members stand by for lost ones.",
        integer(1),
        panel=SPARK,
        says="one for each member",
        page="sessions.md",
        also=("max_concurrent_trials",),
    )


class RunKeywords(StandbyKeywords, PoolRunKeywords):
    """Options of `run`."""


class ResumeKeywords(CallbackKeywords, ProgressKeywords, EnvironmentKeywords, StandbyKeywords, ConcurrencyKeywords):
    """Options of `resume`: `max_concurrent_trials` is for a sweep, `agents` for a run of one gang."""


class ExtendKeywords(CallbackKeywords, ProgressKeywords, EnvironmentKeywords, ConcurrencyKeywords):
    """Options of `extend`."""

    trials: int | None = option(
        "How many trials a sampled sweep gets beside those that it has.",
        integer(1),
        panel=TRIALS,
        says="none: its space has more values",
        in_file=False,
        page="resume.md#more-trials-and-wider-spaces",
        also=("n_trials", "num_samples", "max_trials", "more"),
    )


class RefitKeywords(RunKeywords):
    """Options of `refit`: those of `run`, and which trial of the sweep."""

    trial: int | None = option("Number of the trial that is trained on.", integer(0), panel=TRIALS, says="the best one")
    from_checkpoint: str = option(
        "Checkpoint of the trial to start from: newest, best, or none for step 0.",
        ValueRule(checkpoint_choice, "newest|best|none", takes=bool | str),
        default="newest",
        panel=TRIALS,
        says="newest, or step 0 where the trial has none",
        page="gangs.md#the-best-trial-longer-or-wider",
    )


class PoolKeywords(Keywords):
    """Options of `pool`."""

    agents: int | None = option(
        "Agents to start, each in one slot of the session; every member of a trial needs one.",
        integer(1),
        panel=SPARK,
        says="one for each slot",
        page="sessions.md",
    )
    preload: tuple[str, ...] = option(
        "Modules that are imported before the first call.",
        MODULES,
        default=DEFAULT_PRELOAD,
        details="A call adds the other modules that it uses.",
    )
    idle_timeout: float | None = option(
        "Give the slots back after this time without a call; the next call starts new agents.",
        TIME,
        default=600.0,
        says="10m",
    )
    gpu_memory: int | None = _gpu_memory()
