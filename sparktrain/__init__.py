"""Hyperparameter sweeps and distributed training of deep networks on the Spark cluster that you already have.

driver/     the Spark driver: coordinator, launch, results          |  what the user calls: sweep, run, launch, pool
executor/   one agent in one Spark task                             |
training/   the zygote and the training processes that it forks     |  what the user's function gets: ctx
state/      every decision, pure; search/ which trial is next
protocol/   messages between them; store/ what outlives them
"""

from typing import TYPE_CHECKING, Any

from sparktrain.errors import (
    AgentsLostError,
    BugError,
    DeposedError,
    DriverUnreachableError,
    EnvironmentMismatchError,
    FunctionError,
    InfraError,
    JoinTimeoutError,
    JournalDamagedError,
    MissingFileError,
    NestedCallError,
    NoBestTrialError,
    PoolError,
    ResourceError,
    ResumeError,
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
    UserError,
)

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparktrain.api import Pool, launch, pool, resume, run, sweep
    from sparktrain.driver.engines.local_engine import LocalMachine, local
    from sparktrain.runs.results import RunResult, SweepResult, TrialResult
    from sparktrain.runs.stored_result import load
    from sparktrain.search.space import cases, grid, when, zipped
    from sparktrain.training.context import TrainContext
    from sparktrain.training.keras.lr_schedule import Warmup

_HOMES = {
    "Pool": "sparktrain.api",
    "launch": "sparktrain.api",
    "pool": "sparktrain.api",
    "resume": "sparktrain.api",
    "run": "sparktrain.api",
    "sweep": "sparktrain.api",
    "LocalMachine": "sparktrain.driver.engines.local_engine",
    "local": "sparktrain.driver.engines.local_engine",
    "load": "sparktrain.runs.stored_result",
    "RunResult": "sparktrain.runs.results",
    "SweepResult": "sparktrain.runs.results",
    "TrialResult": "sparktrain.runs.results",
    "cases": "sparktrain.search.space",
    "grid": "sparktrain.search.space",
    "when": "sparktrain.search.space",
    "zipped": "sparktrain.search.space",
    "TrainContext": "sparktrain.training.context",
    "Warmup": "sparktrain.training.keras.lr_schedule",
}
"""Public names that are imported when they are used: executors import this package too, and need none of the driver."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


_FOUND_FIRST = ("InfraError", "RunFailedError", "SparktrainError", "UserError")
"""Of the errors, those that programs catch; the others are found in `sparktrain.errors`."""


def __dir__() -> list[str]:
    """What users call, for completion in a notebook: none of it is in this module before it is used."""
    return [*_HOMES, *_FOUND_FIRST, "errors", "__doc__", "__version__"]


__all__ = [
    "AgentsLostError",
    "BugError",
    "DeposedError",
    "DriverUnreachableError",
    "EnvironmentMismatchError",
    "FunctionError",
    "InfraError",
    "JoinTimeoutError",
    "JournalDamagedError",
    "LocalMachine",
    "MissingFileError",
    "NestedCallError",
    "NoBestTrialError",
    "Pool",
    "PoolError",
    "ResourceError",
    "ResumeError",
    "RunDirectoryError",
    "RunFailedError",
    "RunLostError",
    "RunResult",
    "RunStoppedError",
    "SessionError",
    "SparktrainError",
    "SpecError",
    "StoreError",
    "StoreRefusedError",
    "StoreTimeoutError",
    "SweepResult",
    "TrainContext",
    "TrialResult",
    "UserError",
    "Warmup",
    "cases",
    "grid",
    "launch",
    "load",
    "local",
    "pool",
    "resume",
    "run",
    "sweep",
    "when",
    "zipped",
]
