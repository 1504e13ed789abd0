"""Independent copies of a function on executors, by the name of TensorFlowOnSpark: each trains alone."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktrain.api import Pool, launch
from sparktrain.base.boundary import users_call
from sparktrain.config.param_values import described
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.errors import ResourceError, RunFailedError, RunLostError, SpecError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.failure_table import log_of
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus
from sparktrain.tensorflowonspark.map_functions import check_map_function, files_of, place_of
from sparktrain.tensorflowonspark.paths import absolute_path

if TYPE_CHECKING:
    from sparktrain.training.context import TrainContext

MOST = 100_000
"""As many copies as a sweep has trials."""


class ParallelContext:
    """`ctx` of a copy: which of the copies this is, and where files are."""

    job_name = "worker"
    mgr = None
    tmp_socket = None

    def __init__(self, context: "TrainContext", worker_num: int, num_workers: int, files: str, folder: str) -> None:
        self.sparktrain = context
        """The context of sparktrain: checkpoints, reports."""
        self.worker_num = worker_num
        """Counts the copies from 0."""
        self.num_workers = num_workers
        self.defaultFS = files
        """The default file system of the driver's Hadoop configuration."""
        self.working_dir = folder
        """The folder in which the driver runs."""

    @property
    def executor_id(self) -> int:
        """The number of the copy, as `worker_num`."""
        return self.worker_num

    @property
    def task_index(self) -> int:
        """The number of the copy, as `worker_num`."""
        return self.worker_num

    @property
    def cluster_spec(self) -> dict[str, list[str]]:
        """Empty: copies know nothing of each other."""
        return {}

    def absolute_path(self, path: str) -> str:
        """The URL of `path`: with a slash in front beneath `defaultFS`, else beneath the home or `working_dir`."""
        return absolute_path(path, self.defaultFS, self.working_dir)

    def release_port(self) -> None:
        """Nothing to do: a copy holds no port."""

    def __getattr__(self, name: str) -> Any:
        if name in ("get_data_feed", "start_cluster_server", "export_saved_model"):
            raise AttributeError(
                f"ctx.{name} of TFParallel: copies are no cluster and are not fed: call TFCluster.run(...) for one"
            )
        raise AttributeError(f"ctx of TFParallel has no attribute {name!r}")


@users_call
def run(
    sc: Any, map_fn: Callable[..., Any], tf_args: Any, num_executors: int, use_barrier: bool = True, **options: Any
) -> None:
    """Call `map_fn(tf_args, ctx)` in `num_executors` processes on executors, each a trial of one sweep. Blocks.

    With `use_barrier`, all copies must find slots at once; without it, some may follow others. What the copies return
    is dropped. The first that fails ends the others.

    Args:
        sc: a SparkContext or SparkSession, a pool of `sparktrain.pool()`, or `sparktrain.local()`.
        tf_args: anything that can be pickled.
        **options: those of `sparktrain.launch`, such as dir and name.

    Raises RunFailedError with the traceback of the copy that failed, RunLostError for one that the cluster lost too
    often, ResourceError for fewer slots than copies, FunctionError for a `map_fn` that does not take two arguments,
    SpecError, SessionError, and what `sparktrain.launch` raises.
    """
    check_map_function(map_fn, "map_fn")
    if type(num_executors) is not int or not 1 <= num_executors <= MOST:
        raise SpecError(f"num_executors is {described(num_executors)}; pass a whole number from 1 to {MOST}")
    place = place_of(sc)
    if use_barrier:
        _check_slots(place, num_executors)
    function = _copy(map_fn, tf_args, num_executors, files_of(place), os.getcwd())
    numbers = {"worker_num": list(range(num_executors))}
    launch_options = {"max_failures": 1, **options}
    ended = place.launch(function, numbers, **launch_options) if isinstance(place, Pool) else (
        launch(place, function, numbers, **launch_options)
    )  # fmt: skip
    if any(trial.status is not TrialStatus.SUCCEEDED for trial in ended.trials):
        raise _error(ended)


def _copy(map_fn: Callable[..., Any], tf_args: Any, copies: int, files: str, folder: str) -> Callable[..., None]:
    """The training function of the sweep."""

    def copy(worker_num: int, ctx: Any) -> None:
        from sparktrain.tensorflowonspark import old_programs
        from sparktrain.tensorflowonspark.TFParallel import ParallelContext

        old_programs.accept()
        map_fn(tf_args, ParallelContext(ctx, worker_num, copies, files, folder))

    copy.__name__ = copy.__qualname__ = getattr(map_fn, "__name__", "map_fn")
    copy.__module__ = getattr(map_fn, "__module__", "__main__")  # its imports are the user's
    return copy


def _check_slots(place: Any, copies: int) -> None:
    """Raise ResourceError where fewer copies can run at a time; where their number is unknown, all may find slots."""
    if isinstance(place, Pool):
        slots: int | None = place.agents
    elif isinstance(place, LocalMachine):
        slots = place.slots
    else:
        from sparktrain.cluster import spark_facts

        session = spark_facts.active_session(place)
        slots = spark_facts.slots(spark_facts.read_facts(session, os.cpu_count() or 1))
    if slots is not None and slots < copies:
        raise ResourceError(
            f"num_executors is {copies}, and {slots} copies can run at a time: give the session more executors or "
            "cores, or pass use_barrier=False to let some copies follow others"
        )


def _error(ended: SweepResult) -> RunFailedError:
    """The error of the copy that failed first, or of one that never ran."""
    order = {TrialStatus.FAILED: 0, TrialStatus.LOST: 1}
    worst = [result for result in ended.trials if result.status is not TrialStatus.SUCCEEDED]
    trial: TrialResult = min(worst, key=lambda outcome: order.get(outcome.status, 2))
    kind = RunLostError if trial.status is TrialStatus.LOST else RunFailedError
    why = trial.error.summary if trial.error is not None else "it was stopped before its end"
    error = kind(f"copy {trial.params.get('worker_num')} of {len(ended.trials)} failed: {why}; see {ended.directory}")
    error.directory = ended.directory
    if trial.error is not None:
        error.traceback = trial.error.traceback
        error.log_tail = trial.error.log_tail
        error.rank = trial.error.rank
        error.host = trial.error.host
        error.log = log_of(trial, trial.error)
    return error
