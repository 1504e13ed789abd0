"""Every option of every call, defined once.

Each class below lists the options that one call takes by name, and its instance holds the checked values. sparktrain
derives from it the signature and docstring of the call, the types in `call_arguments` that editors show, the flags of
the command line, the settings of a parameter file, the checks of values, and the tables in docs/.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from sparktrain.config import backends, environment, metric_names, sweep_spec
from sparktrain.config.call_option import Keywords, option
from sparktrain.config.data_sources import Source, named_paths, sources_of
from sparktrain.config.gang_options import AveragingKeywords, GangKeywords, MemberKeywords
from sparktrain.config.metric_names import Mode
from sparktrain.config.option_rules import (
    CHANGED,
    FLAG,
    LEAST_PRIORITY,
    MEMORY,
    MODULES,
    PLACE,
    TEXT,
    TIME,
    WAIT,
    WEIGHT,
    CoordinatorPlace,
    ValueRule,
    checkpoint_choice,
    coordinator_place,
    integer,
    notice_or_none,
)
from sparktrain.config.panels import GANG, METRIC, RESUMING, SIZE, SPARK, TRIALS, WHERE
from sparktrain.config.search_options import SearchKeywords
from sparktrain.config.store_address import DEFAULT_DIR, STORE_TIMEOUT_S
from sparktrain.config.tracking_options import CallbackKeywords, TrackingKeywords

BackendName = Literal["auto", "horovod", "tensorflow", "torch", "jax", "parameter-server", "none"]

CODE_BYTES = 60 * 2**20


def _metric(*, required: bool) -> Any:
    return option(
        "Entry of the function's result by which trials are compared.",
        ValueRule(metric_names.metric_name, "NAME"),
        panel=METRIC,
        default_text="none: no trial is best",
        page="results.md",
        required=required,
    )


class SliceKeywords(Keywords):
    """Options of all calls that start agents which may share GPUs."""

    gpu_memory: int | None = option(
        "Memory of one GPU for each process that trains, such as 8GiB; several processes share a GPU if it has enough.",
        MEMORY,
        panel=SIZE,
        default_text="all memory of its GPUs",
        page="gpus.md#slices-of-a-gpu",
        also=("gpu_mem", "gpu_memory_limit", "memory_limit", "gpu_fraction"),
    )


class DataKeywords(Keywords):
    """Options of all calls that give trials data."""

    data: Mapping[str, Source] = option(
        "Data for `ctx.dataset(name)`: Spark DataFrames, tables, or files, by name.",
        ValueRule(sources_of, "NAME=PATH", named_paths, repeats=True, takes=Mapping[str, Any]),
        default={},
        default_text="none",
        flag_doc="Files for ctx.dataset(NAME): Parquet, Arrow or TFRecord, such as train=hdfs:///x/*.parquet. "
        "Repeatable.",
        details="sparktrain writes a DataFrame into the run directory once, before training starts.",
        page="data.md",
    )
    data_cache: str | None = option(
        "Local directory on executor hosts that caches data from the store.",
        PLACE,
        default_text="the temporary directory",
        page="data-reference.md#read-once-for-each-host",
    )
    data_cache_limit: int | None = option(
        "Most bytes of this directory on each host, for the data of all runs.",
        integer(1),
        default_text="a quarter of the free disk",
        page="data-reference.md#read-once-for-each-host",
    )


class EnvironmentKeywords(Keywords):
    """Options of all calls that start trials."""

    env: Mapping[str, str] = option(
        "Environment variables for trials: a value by name.",
        ValueRule(environment.variables, "NAME[=VALUE]", repeats=True, takes=Mapping[str, str | float]),
        default={},
        default_text="none",
        flag_doc="Environment variable for trials; NAME alone takes its value here, which hides it from `ps`. "
        "Repeatable.",
        page="code-and-environment.md#the-environment-of-a-trial",
    )
    forward_env: tuple[str, ...] = option(
        "Names of the driver's environment variables that trials get, such as WANDB_*.",
        ValueRule(environment.patterns, "N1,N2", takes=Sequence[str]),
        default=(),
        default_text="none",
        flag=None,
        page="code-and-environment.md#the-environment-of-a-trial",
    )


class ProgressKeywords(TrackingKeywords):
    """Options of all calls that show progress or report it elsewhere."""

    progress: bool = option("Show progress.", FLAG, default=True, flag=None, in_file=False, page="results.md")
    tensorboard: bool = option("Serve TensorBoard while the run lasts.", FLAG, default=False, page="tensorboard.md")
    page: bool = option("Serve a page of the run while it lasts.", FLAG, default=False, page="page.md")
    retry_failed: bool = option(
        "Retry failed trials too, with the current code.",
        FLAG,
        default=False,
        panel=RESUMING,
        in_file=False,
        page="resume.md",
    )


class DirectoryKeywords(Keywords):
    """Options of calls that create a run directory."""

    mode: Mode | None = option(
        "Which end of the metric is better: max or min.",
        ValueRule(metric_names.mode, "max|min"),
        panel=METRIC,
        default_text="what the name of the metric implies",
        details="A loss or an error is better when it is lower, an accuracy or a score when it is higher; if the "
        "name implies neither, pass `mode`.",
        page="results.md#which-end-is-best",
    )
    backend: backends.Backend | Literal["auto"] = option(
        "What connects the members of a gang: horovod, tensorflow, torch, jax, parameter-server, none, or auto.",
        ValueRule(backends.backend_or_auto, "NAME", takes=BackendName | backends.Backend),
        default="auto",
        panel=GANG,
        details="auto uses PyTorch if the modules of the function import torch and not TensorFlow, and JAX if they "
        "import jax, or Keras with `KERAS_BACKEND=jax`, and neither TensorFlow nor torch. For others it uses Horovod "
        "if driver and executors have it, and TensorFlow's collectives otherwise. With none each member runs by "
        "itself, and knows its rank.",
        page="gangs.md#which-backend-when",
    )
    name: str | None = option(
        "Name of the run and of its directory.",
        ValueRule(sweep_spec.run_name, "NAME"),
        default_text="function and time",
        panel=WHERE,
        details="A later call with the same `dir` and `name` resumes the run.",
        page="resume.md",
    )
    dir: str = option(
        "Where sparktrain creates run directories: a path or a URL.",
        PLACE,
        default=DEFAULT_DIR,
        panel=WHERE,
        page="stores.md",
    )
    seed: int | None = option(
        "Seed of the run; sparktrain derives each `ctx.seed` from it and the trial's id.",
        ValueRule(sweep_spec.sweep_seed, "N", integer(0).read),
        default_text="random",
    )


class LimitKeywords(MemberKeywords):
    """Options of sweeps and runs about time, sizes, changes and GPUs."""

    timeout: float | None = option(
        "Stop the run after this time: seconds, or text such as 90s, 5m, 1h30m.", TIME, default_text="never"
    )
    start_timeout: float = option(
        "How long to wait for agents while there are none.", WAIT, default=300.0, default_text="5m"
    )
    store_timeout: float = option(
        "Longest outage of its store that the run survives.",
        WAIT,
        default=STORE_TIMEOUT_S,
        default_text="5m",
        details="After a longer outage the run ends, and you can resume it.",
        page="stores.md",
    )
    max_retries: int = option(
        "Retries of a trial, or of the gang of a run, after the loss of a process, agent or executor.",
        integer(0),
        default=3,
        page="training-function.md",
    )
    preload: tuple[str, ...] | None = option(
        "Modules to import before training starts.", MODULES, default_text="those that the function uses"
    )
    code_limit: int = option(
        "Most bytes of the pickled function, with its modules and captured values.",
        integer(1),
        default=CODE_BYTES,
        default_text="60 MiB",
        page="code-and-environment.md#how-your-code-travels",
    )
    data_version: str | None = option(
        "Your name for the data: a run does not resume with data of another version.",
        TEXT,
        default_text="none",
        page="resume.md",
    )
    allow_changed: tuple[str, ...] = option(
        "What may have changed since the run started: code, space, data, metric, seed or gang.",
        CHANGED,
        default=(),
        default_text="nothing",
        panel=RESUMING,
        in_file=False,
        page="resume.md",
    )
    gpus: int = option("GPUs for each process that trains.", integer(0), default=0, panel=SIZE, page="gpus.md")
    notice: str | None = option(
        "File or URL at which each agent looks for the notice that its host will be lost; then it is drained.",
        ValueRule(notice_or_none, "ADDRESS", takes=str | PathLike[str]),
        panel=SPARK,
        default_text="spark.sparktrain.notice of the session, else none",
        details="A file that exists, or an answer with content, is a notice. http is for addresses of the host itself "
        "and its link.",
        page="sessions.md#announced-losses",
    )


class SharingKeywords(Keywords):
    """Options of calls that share the slots of a pool or a session with others."""

    weight: float = option(
        "Share of the slots, against the weights of other calls at the same time.",
        WEIGHT,
        default=1.0,
        panel=SPARK,
        details="A call of weight 2 gets twice the slots of one of weight 1, as long as both have use for them.",
        page="sessions.md#several-calls-at-a-time",
    )
    priority: int = option(
        "Calls of a higher priority get slots first: trials of lower ones pause at their next checkpoint.",
        integer(LEAST_PRIORITY),
        default=0,
        panel=SPARK,
        details="A paused trial continues from that checkpoint. A trial that saves none is left to end.",
        page="sessions.md#several-calls-at-a-time",
    )


class CommonKeywords(
    SharingKeywords,
    ProgressKeywords,
    EnvironmentKeywords,
    DataKeywords,
    SliceKeywords,
    LimitKeywords,
    DirectoryKeywords,
):
    """Options of sweeps and of runs of one gang."""


class TrialsKeywords(SearchKeywords, AveragingKeywords, CommonKeywords):
    """Options of all sweeps."""

    refusals = {  # noqa: RUF012 - an annotation would make it an option
        "standby": "only a run of one gang has processes that wait for a loss, and slots of a sweep are for trials; "
        "leave it out, or train one gang by sparktrain.run(standby=1)"
    }

    trial_timeout: float | None = option(
        "End a trial after this time, and count it as failed.", TIME, default_text="never"
    )
    hang_timeout: float | None = option(
        "End a trial that has reported steps, and then reports none for this time.",
        TIME,
        default_text="120s in a fit with ctx.keras_callbacks(), else never",
    )
    max_failures: int | Literal["auto"] | None = option(
        "End the sweep when this many trials have failed; none: never.",
        ValueRule(sweep_spec.failures, "N"),
        default="auto",
        default_text="when the first trials all fail in the same way",
        details="The first trials are two for each slot, and at least three.",
        page="training-function.md#when-the-first-trials-fail",
    )
    workers_per_trial: int = option(
        "Members of the gang that trains each trial.", integer(1), default=1, panel=SIZE, page="gangs.md"
    )


class PoolLaunchKeywords(CallbackKeywords, TrialsKeywords):
    """Options of `Pool.launch`."""

    metric: str | None = _metric(required=False)


class PoolSweepKeywords(CallbackKeywords, TrialsKeywords):
    """Options of `Pool.sweep`."""

    metric: str = _metric(required=True)


class PlaceKeywords(Keywords):
    """Options of calls that start agents of their own for one run."""

    coordinator: CoordinatorPlace | None = option(
        "Where the coordinator of the run is: in this process (driver), or beside an agent (cluster).",
        ValueRule(coordinator_place, "PLACE", takes=CoordinatorPlace),
        panel=SPARK,
        default_text="driver; cluster if executors of a Spark Connect session cannot reach this process",
        details="With cluster, nothing connects to this process, and its end does not end the run, as long as Spark "
        "keeps the job. `dir` must be a store that all hosts reach.",
        page="sessions.md#the-coordinator-in-the-cluster",
    )


class ConcurrencyKeywords(Keywords):
    """Options of sweeps that start their own agents."""

    max_concurrent_trials: int | None = option(
        "Most trials that train at the same time.",
        integer(1),
        panel=SIZE,
        default_text="as many as the session has slots for",
        details="A trial takes as many slots as its gang has members, so n trials of k members take n * k slots; if "
        "the session has fewer slots, fewer trials train at the same time.",
        page="sessions.md",
        also=("agents", "max_parallel_trials", "n_jobs", "parallelism"),
    )


class PooledSearchKeywords(ConcurrencyKeywords, PoolLaunchKeywords):
    """Options of `optuna.optimize` and `sklearn.search_cv` on a pool."""


class StudyKeywords(ConcurrencyKeywords, TrialsKeywords):
    """Options of `optuna.optimize`, which has its own callbacks."""


class FoldSearchKeywords(CallbackKeywords, ConcurrencyKeywords, TrialsKeywords):
    """Options of `sklearn.search_cv`, which has its metric, folds and data of its own."""


class LaunchKeywords(PlaceKeywords, ConcurrencyKeywords, PoolLaunchKeywords):
    """Options of `launch`, and of the command line's `sweep`."""


class SweepKeywords(PlaceKeywords, ConcurrencyKeywords, PoolSweepKeywords):
    """Options of `sweep`."""


class PoolRunKeywords(CallbackKeywords, GangKeywords, CommonKeywords):
    """Options of `Pool.run`."""

    metric: str | None = option(
        "Entry of the function's result by which checkpoints are compared.",
        ValueRule(metric_names.metric_name, "NAME"),
        panel=METRIC,
        default_text="none: the newest checkpoint stays",
    )


class StandbyKeywords(Keywords):
    """Options of runs of one gang that start their own agents."""

    agents: int | None = option(
        "Agents to start for the gang of a run; those beyond its members stand by to replace lost ones.",
        integer(1),
        panel=SIZE,
        default_text="one for each member",
        page="sessions.md",
        also=("max_concurrent_trials",),
    )


class RunKeywords(PlaceKeywords, StandbyKeywords, PoolRunKeywords):
    """Options of `run`."""


class ResumeKeywords(
    PlaceKeywords,
    CallbackKeywords,
    ProgressKeywords,
    EnvironmentKeywords,
    StandbyKeywords,
    ConcurrencyKeywords,
    SharingKeywords,
):
    """Options of `resume`: `max_concurrent_trials` is for a sweep, `agents` for a run of one gang."""


class ExtendKeywords(
    PlaceKeywords, CallbackKeywords, ProgressKeywords, EnvironmentKeywords, ConcurrencyKeywords, SharingKeywords
):
    """Options of `extend`."""

    trials: int | None = option(
        "How many trials to add to a sampled sweep.",
        integer(1),
        panel=TRIALS,
        default_text="none: only a wider space adds trials",
        in_file=False,
        page="resume.md#more-trials-and-wider-spaces",
        also=("n_trials", "num_samples", "max_trials", "more"),
    )


class RefitKeywords(RunKeywords):
    """Options of `refit`: those of `run`, and the choice of the trial."""

    trial: int | None = option(
        "Number of the trial to continue training.", integer(0), panel=TRIALS, default_text="the best one"
    )
    from_checkpoint: str = option(
        "Checkpoint of the trial to start from: newest, best, or none for step 0.",
        ValueRule(checkpoint_choice, "newest|best|none", takes=bool | str),
        default="newest",
        panel=TRIALS,
        default_text="newest, or step 0 if the trial has none",
        page="gangs.md#the-best-trial-longer-or-wider",
    )


class PoolKeywords(SliceKeywords):
    """Options of `pool`."""

    agents: int | None = option(
        "Agents to start, each in one slot of the session; every member of a trial needs one.",
        integer(1),
        panel=SIZE,
        default_text="one for each slot",
        page="sessions.md",
    )
    preload: tuple[str, ...] | None = option(
        "Modules to import before the first call.",
        MODULES,
        default_text="numpy, keras and tensorflow, or the other frameworks that this process has imported",
        details="A call adds the other modules that it uses.",
        page="sessions.md#pools-calls-that-start-at-once",
    )
    idle_timeout: float | None = option(
        "Release the slots after this time without a call; the next call starts new agents.",
        TIME,
        default=600.0,
        default_text="10m",
    )
