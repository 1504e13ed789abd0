"""What callers may pass by name, for type checkers and editors; `cli.option_tables` writes this module."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, Required, TypedDict

from sparktrain.config.backends import Backend
from sparktrain.config.stoppers import StopRule
from sparktrain.config.tracking_options import MLflow

# fmt: off
# ruff: noqa: E501

class AveragingArguments(TypedDict, total=False):
    local_steps: int | None

class GangArguments(AveragingArguments, total=False):
    workers: Required[int]
    ps: int
    ps_mode: Literal['async', 'staleness-aware', 'sync', 'local-sgd']
    backup_workers: int
    evaluator: bool
    min_workers: int | None
    standby: int
    spread: bool
    hang_timeout: float | timedelta | str

class MemberArguments(TypedDict, total=False):
    log_limit: int
    healing: bool

class SearchArguments(TypedDict, total=False):
    trials: int | None
    repeats: int
    folds: int
    racing: bool
    sampler: Any | None
    other_metrics: Mapping[str, str | None] | Sequence[str] | None
    constraints: Sequence[str] | None
    target: float | None
    plateau: int | None
    budget: float | timedelta | str | None
    warm_start: Any | None
    stopper: str | StopRule | Sequence[str | StopRule] | None

class CallbackArguments(TypedDict, total=False):
    callbacks: Sequence[Any] | Any

class TrackingArguments(TypedDict, total=False):
    tracking: str | MLflow | None
    notify: str | Callable[[Any], object] | None
    notify_after: float | timedelta | str

class SliceArguments(TypedDict, total=False):
    gpu_memory: int | str | None

class DataArguments(TypedDict, total=False):
    data: Mapping[str, Any]
    data_cache: str | PathLike[str] | None
    data_cache_limit: int | None

class EnvironmentArguments(TypedDict, total=False):
    env: Mapping[str, str | float]
    forward_env: Sequence[str]

class ProgressArguments(TrackingArguments, total=False):
    progress: bool
    tensorboard: bool
    page: bool
    retry_failed: bool

class DirectoryArguments(TypedDict, total=False):
    mode: Literal['max', 'min'] | None
    backend: Literal['auto', 'horovod', 'tensorflow', 'torch', 'jax', 'parameter-server', 'none'] | Backend
    name: str | None
    dir: str | PathLike[str]
    seed: int | None

class LimitArguments(MemberArguments, total=False):
    timeout: float | timedelta | str | None
    start_timeout: float | timedelta | str
    store_timeout: float | timedelta | str
    max_retries: int
    preload: Sequence[str] | None
    code_limit: int
    data_version: str | None
    allow_changed: Sequence[Literal['code', 'space', 'data', 'metric', 'seed', 'gang']] | str
    gpus: int
    notice: str | PathLike[str] | None

class SharingArguments(TypedDict, total=False):
    weight: float
    priority: int

class CommonArguments(SharingArguments, ProgressArguments, EnvironmentArguments, DataArguments, SliceArguments, LimitArguments, DirectoryArguments, total=False): ...

class TrialsArguments(SearchArguments, AveragingArguments, CommonArguments, total=False):
    trial_timeout: float | timedelta | str | None
    hang_timeout: float | timedelta | str | None
    max_failures: int | Literal['auto'] | None
    workers_per_trial: int

class PoolLaunchArguments(CallbackArguments, TrialsArguments, total=False):
    metric: str | None

class PoolSweepArguments(CallbackArguments, TrialsArguments, total=False):
    metric: Required[str]

class PlaceArguments(TypedDict, total=False):
    coordinator: Literal['driver', 'cluster'] | None

class ConcurrencyArguments(TypedDict, total=False):
    max_concurrent_trials: int | None

class PooledSearchArguments(ConcurrencyArguments, PoolLaunchArguments, total=False): ...

class StudyArguments(ConcurrencyArguments, TrialsArguments, total=False): ...

class FoldSearchArguments(CallbackArguments, ConcurrencyArguments, TrialsArguments, total=False): ...

class LaunchArguments(PlaceArguments, ConcurrencyArguments, PoolLaunchArguments, total=False): ...

class SweepArguments(PlaceArguments, ConcurrencyArguments, PoolSweepArguments, total=False): ...

class PoolRunArguments(CallbackArguments, GangArguments, CommonArguments, total=False):
    metric: str | None

class StandbyArguments(TypedDict, total=False):
    agents: int | None

class RunArguments(PlaceArguments, StandbyArguments, PoolRunArguments, total=False): ...

class ResumeArguments(PlaceArguments, CallbackArguments, ProgressArguments, EnvironmentArguments, StandbyArguments, ConcurrencyArguments, SharingArguments, total=False): ...

class ExtendArguments(PlaceArguments, CallbackArguments, ProgressArguments, EnvironmentArguments, ConcurrencyArguments, SharingArguments, total=False):
    trials: int | None

class RefitArguments(RunArguments, total=False):
    trial: int | None
    from_checkpoint: bool | str

class PoolArguments(SliceArguments, total=False):
    agents: int | None
    preload: Sequence[str] | None
    idle_timeout: float | timedelta | str | None
