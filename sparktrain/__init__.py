"""Hyperparameter sweeps and distributed training of deep networks on the Spark cluster that you already have.

What users import: `api`, `data`, `errors`, and the wings `optuna`, `sklearn`, `torch`, `ml`, `tensorflowonspark` and
`testing`.

The core, from what users call down to what all layers use:
    cli        the command line
    driver     the Spark driver: coordinator, launch             |  the user calls sweep, run, launch, pool
    results    what calls return
    display    a run as text, live and afterwards
    runs       a run directory as data
    cluster    Spark: sessions, YARN, DataFrames
    usercode   the training function, serialized
    executor   one agent in one Spark task                       |
    training   the zygote and the processes that it forks        |  the user's function gets ctx
    protocol   messages between driver, agents and members
    rundir     paths, journal and checkpoints of a run directory
    datasets   rows outside of Spark and of frameworks
    store      storage that outlives processes
    state      every decision, pure
    search     which trial is next, pure
    config     what a run is asked to be
    base       tools of all

Wings, which no module of the core imports: those that users import, `views` (what people look at), and `ops` (the
examination of a cluster, and simulation). The core takes what it needs of them by name, from `base.wings` and
`cli.command_table`.
"""

from typing import TYPE_CHECKING, Any

from sparktrain.errors import (
    AgentsLostError,
    BugError,
    CheckpointError,
    DataError,
    DeposedError,
    DriverUnreachableError,
    EnvironmentMismatchError,
    FormError,
    FunctionError,
    GangNeededError,
    IllegalMoveError,
    InfraError,
    JoinTimeoutError,
    JournalCorruptError,
    MissingFileError,
    NestedCallError,
    NoBestTrialError,
    OutOfStepError,
    PoolError,
    ProtocolError,
    ResourceError,
    ResumeError,
    RingError,
    RunDirectoryError,
    RunFailedError,
    RunLostError,
    RunStoppedError,
    SamplerError,
    SessionError,
    SparktrainError,
    SpecError,
    StoreError,
    StoreRefusedError,
    StoreTimeoutError,
    StrategyError,
    StreamError,
    UserError,
)

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparktrain import data, ml, optuna, sklearn, testing
    from sparktrain.api import Pool, attach, extend, launch, pool, refit, resume, run, session, submit, sweep
    from sparktrain.config.backends import Backend
    from sparktrain.config.distribution import (
        Distribution,
        choice,
        lograndint,
        loguniform,
        normal,
        quniform,
        randint,
        uniform,
    )
    from sparktrain.config.gang_spec import Role
    from sparktrain.config.objectives import Constraint, Objective
    from sparktrain.config.stoppers import ASHA, PBT, Hyperband, Median, Patience, StopRule, Threshold, Wilcoxon
    from sparktrain.config.tracking_options import MLflow
    from sparktrain.datasets.columns import Column, ColumnKind
    from sparktrain.driver.clustered.run_handle import RunHandle
    from sparktrain.driver.engines.local_engine import LocalMachine, local
    from sparktrain.driver.scripts import script
    from sparktrain.driver.tracking.callback import (
        Callback,
        TrackedEnd,
        TrackedReport,
        TrackedResult,
        TrackedRun,
        TrackedTrial,
    )
    from sparktrain.driver.tracking.notice import Notice
    from sparktrain.ml.prediction import predict, register_predict
    from sparktrain.results.run_result import RunResult
    from sparktrain.results.stored_result import load
    from sparktrain.results.sweep_result import SweepResult
    from sparktrain.runs.case_result import CaseResult
    from sparktrain.runs.sweep_outcome import SweepStatus
    from sparktrain.runs.trial_result import MemberResult, TrialResult
    from sparktrain.search.sampled_space import space
    from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler, Suggestion
    from sparktrain.search.space import Cases, Grid, Space, When, Zipped, cases, grid, when, zipped
    from sparktrain.state.outcome import Failure, FailureKind, Loss, Restart, RestartHow
    from sparktrain.state.trial import Exploit, TrialStatus
    from sparktrain.training.checkpoint.memory_checkpoints import MemoryCheckpoints
    from sparktrain.training.checkpoint.restored import Restored
    from sparktrain.training.checkpoint.saver import CheckpointSaver
    from sparktrain.training.context import TrainContext
    from sparktrain.training.current_context import context, report
    from sparktrain.training.data.stream.stream_data import StreamData
    from sparktrain.training.data.training_data import TrainingData
    from sparktrain.training.frameworks.keras.lr_schedule import Warmup
    from sparktrain.views.notebook.result_plots import Plot, ResultPlots

_HOMES = {
    "Column": "sparktrain.datasets.columns",
    "ColumnKind": "sparktrain.datasets.columns",
    "Pool": "sparktrain.api",
    "attach": "sparktrain.api",
    "extend": "sparktrain.api",
    "launch": "sparktrain.api",
    "pool": "sparktrain.api",
    "refit": "sparktrain.api",
    "resume": "sparktrain.api",
    "run": "sparktrain.api",
    "session": "sparktrain.api",
    "submit": "sparktrain.api",
    "sweep": "sparktrain.api",
    "script": "sparktrain.driver.scripts",
    "context": "sparktrain.training.current_context",
    "report": "sparktrain.training.current_context",
    "RunHandle": "sparktrain.driver.clustered.run_handle",
    "LocalMachine": "sparktrain.driver.engines.local_engine",
    "local": "sparktrain.driver.engines.local_engine",
    "predict": "sparktrain.ml.prediction",
    "register_predict": "sparktrain.ml.prediction",
    "MemberResult": "sparktrain.runs.trial_result",
    "Plot": "sparktrain.views.notebook.result_plots",
    "ResultPlots": "sparktrain.views.notebook.result_plots",
    "RunResult": "sparktrain.results.run_result",
    "SweepResult": "sparktrain.results.sweep_result",
    "CaseResult": "sparktrain.runs.case_result",
    "SweepStatus": "sparktrain.runs.sweep_outcome",
    "TrialResult": "sparktrain.runs.trial_result",
    "load": "sparktrain.results.stored_result",
    "Cases": "sparktrain.search.space",
    "Grid": "sparktrain.search.space",
    "Space": "sparktrain.search.space",
    "When": "sparktrain.search.space",
    "Zipped": "sparktrain.search.space",
    "cases": "sparktrain.search.space",
    "grid": "sparktrain.search.space",
    "when": "sparktrain.search.space",
    "zipped": "sparktrain.search.space",
    "Distribution": "sparktrain.config.distribution",
    "choice": "sparktrain.config.distribution",
    "lograndint": "sparktrain.config.distribution",
    "loguniform": "sparktrain.config.distribution",
    "normal": "sparktrain.config.distribution",
    "quniform": "sparktrain.config.distribution",
    "randint": "sparktrain.config.distribution",
    "uniform": "sparktrain.config.distribution",
    "space": "sparktrain.search.sampled_space",
    "Observation": "sparktrain.search.sampler",
    "ObservedStatus": "sparktrain.search.sampler",
    "PastSuggestion": "sparktrain.search.sampler",
    "Sampler": "sparktrain.search.sampler",
    "Suggestion": "sparktrain.search.sampler",
    "Backend": "sparktrain.config.backends",
    "Role": "sparktrain.config.gang_spec",
    "ASHA": "sparktrain.config.stoppers",
    "Hyperband": "sparktrain.config.stoppers",
    "PBT": "sparktrain.config.stoppers",
    "Median": "sparktrain.config.stoppers",
    "Patience": "sparktrain.config.stoppers",
    "StopRule": "sparktrain.config.stoppers",
    "Threshold": "sparktrain.config.stoppers",
    "Wilcoxon": "sparktrain.config.stoppers",
    "Failure": "sparktrain.state.outcome",
    "FailureKind": "sparktrain.state.outcome",
    "Loss": "sparktrain.state.outcome",
    "Constraint": "sparktrain.config.objectives",
    "Objective": "sparktrain.config.objectives",
    "Exploit": "sparktrain.state.trial",
    "Restart": "sparktrain.state.outcome",
    "RestartHow": "sparktrain.state.outcome",
    "TrialStatus": "sparktrain.state.trial",
    "MLflow": "sparktrain.config.tracking_options",
    "Callback": "sparktrain.driver.tracking.callback",
    "TrackedEnd": "sparktrain.driver.tracking.callback",
    "TrackedReport": "sparktrain.driver.tracking.callback",
    "TrackedResult": "sparktrain.driver.tracking.callback",
    "TrackedRun": "sparktrain.driver.tracking.callback",
    "TrackedTrial": "sparktrain.driver.tracking.callback",
    "Notice": "sparktrain.driver.tracking.notice",
    "MemoryCheckpoints": "sparktrain.training.checkpoint.memory_checkpoints",
    "CheckpointSaver": "sparktrain.training.checkpoint.saver",
    "Restored": "sparktrain.training.checkpoint.restored",
    "TrainContext": "sparktrain.training.context",
    "StreamData": "sparktrain.training.data.stream.stream_data",
    "TrainingData": "sparktrain.training.data.training_data",
    "Warmup": "sparktrain.training.frameworks.keras.lr_schedule",
}
"""Public names that are imported on first use: executors import this package too, and need none of the driver."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("data", "ml", "optuna", "sklearn", "tensorflowonspark", "testing"):
        return import_module(f"sparktrain.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


_FOUND_FIRST = ("InfraError", "RunFailedError", "SparktrainError", "UserError")
"""Errors that programs catch; completion omits the others."""


def __dir__() -> list[str]:
    """Names for completion in a notebook, including those that are imported on first use."""
    return [
        *_HOMES,
        *_FOUND_FIRST,
        "data",
        "errors",
        "ml",
        "optuna",
        "sklearn",
        "tensorflowonspark",
        "testing",
        "__doc__",
        "__version__",
    ]


__all__ = [
    "ASHA",
    "PBT",
    "AgentsLostError",
    "Backend",
    "BugError",
    "Callback",
    "CaseResult",
    "Cases",
    "CheckpointError",
    "CheckpointSaver",
    "Column",
    "ColumnKind",
    "Constraint",
    "DataError",
    "DeposedError",
    "Distribution",
    "DriverUnreachableError",
    "EnvironmentMismatchError",
    "Exploit",
    "Failure",
    "FailureKind",
    "FormError",
    "FunctionError",
    "GangNeededError",
    "Grid",
    "Hyperband",
    "IllegalMoveError",
    "InfraError",
    "JoinTimeoutError",
    "JournalCorruptError",
    "LocalMachine",
    "Loss",
    "MLflow",
    "Median",
    "MemberResult",
    "MemoryCheckpoints",
    "MissingFileError",
    "NestedCallError",
    "NoBestTrialError",
    "Notice",
    "Objective",
    "Observation",
    "ObservedStatus",
    "OutOfStepError",
    "PastSuggestion",
    "Patience",
    "Plot",
    "Pool",
    "PoolError",
    "ProtocolError",
    "ResourceError",
    "Restart",
    "RestartHow",
    "Restored",
    "ResultPlots",
    "ResumeError",
    "RingError",
    "Role",
    "RunDirectoryError",
    "RunFailedError",
    "RunHandle",
    "RunLostError",
    "RunResult",
    "RunStoppedError",
    "Sampler",
    "SamplerError",
    "SessionError",
    "Space",
    "SparktrainError",
    "SpecError",
    "StopRule",
    "StoreError",
    "StoreRefusedError",
    "StoreTimeoutError",
    "StrategyError",
    "StreamData",
    "StreamError",
    "Suggestion",
    "SweepResult",
    "SweepStatus",
    "Threshold",
    "TrackedEnd",
    "TrackedReport",
    "TrackedResult",
    "TrackedRun",
    "TrackedTrial",
    "TrainContext",
    "TrainingData",
    "TrialResult",
    "TrialStatus",
    "UserError",
    "Warmup",
    "When",
    "Wilcoxon",
    "Zipped",
    "attach",
    "cases",
    "choice",
    "context",
    "data",
    "extend",
    "grid",
    "launch",
    "load",
    "local",
    "lograndint",
    "loguniform",
    "ml",
    "normal",
    "optuna",
    "pool",
    "predict",
    "quniform",
    "randint",
    "refit",
    "register_predict",
    "report",
    "resume",
    "run",
    "script",
    "session",
    "sklearn",
    "space",
    "submit",
    "sweep",
    "testing",
    "uniform",
    "when",
    "zipped",
]
