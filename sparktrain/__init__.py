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
    from sparktrain.driver.results import RunResult, SweepResult, TrialResult
    from sparktrain.search.space import cases, grid, when, zipped
    from sparktrain.training.context import TrainContext

_HOMES = {
    "Pool": "sparktrain.api",
    "launch": "sparktrain.api",
    "pool": "sparktrain.api",
    "resume": "sparktrain.api",
    "run": "sparktrain.api",
    "sweep": "sparktrain.api",
    "RunResult": "sparktrain.driver.results",
    "SweepResult": "sparktrain.driver.results",
    "TrialResult": "sparktrain.driver.results",
    "cases": "sparktrain.search.space",
    "grid": "sparktrain.search.space",
    "when": "sparktrain.search.space",
    "zipped": "sparktrain.search.space",
    "TrainContext": "sparktrain.training.context",
}
"""Public names that are imported when they are used: executors import this package too, and need none of the driver."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


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
    "cases",
    "grid",
    "launch",
    "pool",
    "resume",
    "run",
    "sweep",
    "when",
    "zipped",
]
