"""Hyperparameter sweeps and distributed training of deep networks on the Spark cluster that you already have.

driver/     the Spark driver: coordinator, launch, results          |  the user calls sweep, run, launch, pool
executor/   one agent in one Spark task                             |
training/   the zygote and the training processes that it forks     |  the user's function gets ctx
state/      every decision, pure; search/ which trial is next
protocol/   messages between them; store/ storage that outlives them
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
    from sparktrain import data, ml, testing
    from sparktrain.api import Pool, launch, pool, resume, run, sweep
    from sparktrain.config.gang_spec import Backend, Role
    from sparktrain.datasets.columns import Column, ColumnKind
    from sparktrain.driver.engines.local_engine import LocalMachine, local
    from sparktrain.prediction import predict, register_predict
    from sparktrain.results.run_result import RunResult
    from sparktrain.results.stored_result import load
    from sparktrain.results.sweep_result import SweepResult
    from sparktrain.runs.sweep_outcome import SweepStatus
    from sparktrain.runs.trial_result import MemberResult, TrialResult
    from sparktrain.search.space import Cases, Grid, Space, When, Zipped, cases, grid, when, zipped
    from sparktrain.state.outcome import Failure, FailureKind, Loss, Restart
    from sparktrain.state.trial import TrialStatus
    from sparktrain.training.checkpoint.saver import CheckpointSaver, Restored
    from sparktrain.training.context import TrainContext
    from sparktrain.training.data.stream.stream_data import StreamData
    from sparktrain.training.data.training_data import TrainingData
    from sparktrain.training.keras.lr_schedule import Warmup

_HOMES = {
    "Column": "sparktrain.datasets.columns",
    "ColumnKind": "sparktrain.datasets.columns",
    "Pool": "sparktrain.api",
    "launch": "sparktrain.api",
    "pool": "sparktrain.api",
    "resume": "sparktrain.api",
    "run": "sparktrain.api",
    "sweep": "sparktrain.api",
    "LocalMachine": "sparktrain.driver.engines.local_engine",
    "local": "sparktrain.driver.engines.local_engine",
    "predict": "sparktrain.prediction",
    "register_predict": "sparktrain.prediction",
    "MemberResult": "sparktrain.runs.trial_result",
    "RunResult": "sparktrain.results.run_result",
    "SweepResult": "sparktrain.results.sweep_result",
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
    "Backend": "sparktrain.config.gang_spec",
    "Role": "sparktrain.config.gang_spec",
    "Failure": "sparktrain.state.outcome",
    "FailureKind": "sparktrain.state.outcome",
    "Loss": "sparktrain.state.outcome",
    "Restart": "sparktrain.state.outcome",
    "TrialStatus": "sparktrain.state.trial",
    "CheckpointSaver": "sparktrain.training.checkpoint.saver",
    "Restored": "sparktrain.training.checkpoint.saver",
    "TrainContext": "sparktrain.training.context",
    "StreamData": "sparktrain.training.data.stream.stream_data",
    "TrainingData": "sparktrain.training.data.training_data",
    "Warmup": "sparktrain.training.keras.lr_schedule",
}
"""Public names that are imported on first use: executors import this package too, and need none of the driver."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("data", "ml", "tensorflowonspark", "testing"):
        return import_module(f"sparktrain.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


_FOUND_FIRST = ("InfraError", "RunFailedError", "SparktrainError", "UserError")
"""Errors that programs catch; completion omits the others."""


def __dir__() -> list[str]:
    """Names for completion in a notebook, including those that are imported on first use."""
    return [*_HOMES, *_FOUND_FIRST, "data", "errors", "ml", "tensorflowonspark", "testing", "__doc__", "__version__"]


__all__ = [
    "AgentsLostError",
    "Backend",
    "BugError",
    "Cases",
    "CheckpointError",
    "CheckpointSaver",
    "Column",
    "ColumnKind",
    "DataError",
    "DeposedError",
    "DriverUnreachableError",
    "EnvironmentMismatchError",
    "Failure",
    "FailureKind",
    "FormError",
    "FunctionError",
    "GangNeededError",
    "Grid",
    "IllegalMoveError",
    "InfraError",
    "JoinTimeoutError",
    "JournalCorruptError",
    "LocalMachine",
    "Loss",
    "MemberResult",
    "MissingFileError",
    "NestedCallError",
    "NoBestTrialError",
    "OutOfStepError",
    "Pool",
    "PoolError",
    "ProtocolError",
    "ResourceError",
    "Restart",
    "Restored",
    "ResumeError",
    "RingError",
    "Role",
    "RunDirectoryError",
    "RunFailedError",
    "RunLostError",
    "RunResult",
    "RunStoppedError",
    "SessionError",
    "Space",
    "SparktrainError",
    "SpecError",
    "StoreError",
    "StoreRefusedError",
    "StoreTimeoutError",
    "StrategyError",
    "StreamData",
    "StreamError",
    "SweepResult",
    "SweepStatus",
    "TrainContext",
    "TrainingData",
    "TrialResult",
    "TrialStatus",
    "UserError",
    "Warmup",
    "When",
    "Zipped",
    "cases",
    "data",
    "grid",
    "launch",
    "load",
    "local",
    "ml",
    "pool",
    "predict",
    "register_predict",
    "resume",
    "run",
    "sweep",
    "testing",
    "when",
    "zipped",
]
