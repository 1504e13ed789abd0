"""A TensorFlow cluster on executors: starts it, feeds it, and shuts it down. The driver's side of a program."""

import inspect
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sparktrain.api import Pool
from sparktrain.boundary import users_call
from sparktrain.cluster.spark_facts import is_stopped
from sparktrain.config.call_option import settled
from sparktrain.config.data_sources import PushedSource
from sparktrain.config.option_catalog import RunKeywords
from sparktrain.config.param_values import described, did_you_mean
from sparktrain.display.live import choose_display
from sparktrain.display.progress import Display
from sparktrain.driver.background_run import BackgroundRun
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.driver.engines.selection import engine_of
from sparktrain.driver.execution import OwnAgents, PoolAgents, StoppableAgents
from sparktrain.driver.options import RunOptions
from sparktrain.driver.prepare import PreparedRun, compose
from sparktrain.driver.pushed_feed import PushedFeed
from sparktrain.errors import FunctionError, RunStoppedError, SessionError, SpecError
from sparktrain.nesting import check_not_nested
from sparktrain.search.space import single
from sparktrain.tensorflowonspark.node_context import NOT_FED, NodeSettings, executor_of, job_of, node_function
from sparktrain.tensorflowonspark.notices import warn_once
from sparktrain.tensorflowonspark.paths import LOCAL, default_fs

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger("sparktrain")

EPOCHS = 10
"""How often `train` sends the rows where `num_epochs` is 0, as the original does."""
END_S = 30.0
"""How long members that are ended may take, and the end of a run be written."""

_GONE = {
    "nodeRDD": "the members are no partitions of an RDD; see cluster_info",
    "cluster_meta": "members get their settings by sparktrain's own protocol",
    "server": "sparktrain's coordinator has no reservations; cluster.shutdown() ends the cluster",
}


class InputMode:
    """Where members get their rows."""

    TENSORFLOW = 0
    """They read files themselves."""
    SPARK = 1
    """Calls of `train` and `inference` send them."""


class TFCluster:
    """A cluster that runs; `run` makes it. Any thread may use it, such as that of `foreachBatch`."""

    def __init__(
        self, sc: Any, run: BackgroundRun, feeds: dict[str, PushedFeed], settings: NodeSettings, num_executors: int
    ) -> None:
        self.sc = sc
        self.defaultFS = settings.default_fs
        self.working_dir = settings.working_dir
        self.num_executors = num_executors
        self.input_mode = InputMode.SPARK if feeds else InputMode.TENSORFLOW
        self.queues = [*feeds, *NOT_FED]
        self.cluster_id = uuid.uuid4().hex
        self.cluster_info: list[dict[str, Any]] = []
        """A dict for each member: executor_id, host, job_name, task_index."""
        self._run = run
        self._feeds = feeds
        self._settings = settings
        self._tensorboard_url: str | None = None
        self._down = False

    def __getattr__(self, name: str) -> NoReturn:
        why = _GONE.get(name)
        known = f"TFCluster has no attribute {name!r}{did_you_mean(name, [*vars(self), *vars(TFCluster)])}"
        raise AttributeError(known if why is None else f"TFCluster.{name} is gone: {why}")

    @users_call
    def train(self, dataRDD: Any, num_epochs: int = 0, feed_timeout: float = 600, qname: str = "input") -> None:
        """Send the rows of an RDD or a DataFrame to the members; returns when they have taken all, or need no more.

        Members take rows by `ctx.get_data_feed().next_batch(n)`. A slow member is waited for without limit;
        `feed_timeout` limits the wait until all members ask for rows, in seconds. When a member is lost, the gang
        restarts and the epoch is sent again: each row comes at least once. `num_epochs=0` means 10.

        Raises SpecError in InputMode.TENSORFLOW, for an unknown `qname` and for a DStream, SessionError for a stopped
        SparkContext, DataError for rows that cannot be sent, StreamError, and the error that ended the run.
        """
        feed = self._feed("train", qname, dataRDD)
        if type(num_epochs) is not int or num_epochs < 0:
            raise SpecError(f"num_epochs is {described(num_epochs)}; pass a whole number from 1")
        if num_epochs == 0:
            warn_once(f"cluster.train(num_epochs=0) sends the rows {EPOCHS} times; pass num_epochs=1 for one pass")
        from sparktrain.driver.feed_job import PushJob  # a cluster without feeds needs no Arrow

        for _ in range(num_epochs or EPOCHS):
            if not feed.push(partial(PushJob, dataRDD), feed_timeout):
                break

    @users_call
    def inference(self, dataRDD: Any, feed_timeout: float = 600, qname: str = "input") -> "RDD[Any]":
        """The results of the members for the rows of an RDD or a DataFrame: a lazy RDD, one result for each row.

        Members answer `ctx.get_data_feed(train_mode=False).next_batch(n)` by `batch_results(...)`. Each row has exactly
        one result, in its place, also when tasks are repeated and members are lost. Evaluate the RDD before `shutdown`.
        Blocks until all members ask for rows, `feed_timeout` seconds at most.

        Raises SpecError in InputMode.TENSORFLOW and for an unknown `qname`, SessionError for a stopped SparkContext and
        a session of Spark Connect, StreamError, and the error that ended the run.
        """
        feed = self._feed("inference", qname, dataRDD)
        rows = dataRDD if hasattr(dataRDD, "mapPartitions") else _rows_of(dataRDD)
        ticket = feed.ticket(feed_timeout)
        if ticket is None:
            self._run.result()
            raise SpecError("cluster.inference() comes after the members have returned: start another cluster")
        from sparktrain.dataframes.answered_feed import infer_rdd_task

        answered: RDD[Any] = rows.mapPartitions(partial(infer_rdd_task, ticket=ticket, directory=feed.directory))
        return answered

    @users_call
    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """End the feeds, and wait until the members have returned. A second call does nothing.

        `grace_secs` limits the wait in seconds, 0 leaves it to `timeout`, where -1 is no limit; members that are still
        there are ended. Raises what the members raised, RunStoppedError for members that did not return in time.
        """
        if ssc is not None:
            raise SpecError(f"cluster.shutdown(ssc): {_NO_STREAMING}")
        if self._down:
            return
        self._down = True
        for feed in self._feeds.values():
            feed.end()
        limit = grace_secs or (None if timeout < 0 else timeout)
        if not self._run.join(limit):
            late = f"members have not returned {limit:g} s after the end of their feed" if self._feeds else (
                f"members have not returned within {limit:g} s"
            )  # fmt: skip
            self._run.stop(f"{late}, at cluster.shutdown()")
            if not self._run.join(END_S):
                raise RunStoppedError(f"{late}, and their end is not known after {END_S:g} s more; see the run's logs")
        self._run.result()

    def tensorboard_url(self) -> str | None:
        """The URL of the cluster's TensorBoard; None where `run` was not asked for one."""
        return self._tensorboard_url

    # ---- internal

    def _start(self, timeout_s: float) -> None:
        """Wait for the members. Raises as `run`."""
        self._run.start()
        try:
            members = self._run.wait_for_members(timeout_s)
        except BaseException:
            self._run.stop("the cluster did not start")
            raise
        for member in members:
            index = _index(member.rank, self._settings, len(members))
            job, task = job_of(member.role.value, index, self._settings.master_node)
            number = executor_of(member.rank, len(members), self._settings)
            self.cluster_info.append(
                {"executor_id": number, "host": member.host, "job_name": job, "task_index": task}
            )  # fmt: skip
        self.cluster_info.sort(key=lambda each: int(each["executor_id"]))

    def _feed(self, call: str, qname: str, rows: Any) -> PushedFeed:
        """The feed of a call. Raises SpecError, SessionError."""
        if self._down:
            raise SpecError(f"cluster.{call}() comes after cluster.shutdown(): start another cluster")
        if not self._feeds:
            raise SpecError(
                f"cluster.{call}() needs a cluster with input_mode=TFCluster.InputMode.SPARK; in InputMode.TENSORFLOW "
                "members read their data themselves"
            )
        if qname not in self._feeds:
            known = ", ".join(map(repr, self._feeds))
            raise SpecError(
                f"qname is {qname!r}, the feeds of this cluster are {known}{did_you_mean(qname, self._feeds)}"
            )
        _check_rows(call, rows)
        return self._feeds[qname]


_NO_STREAMING = (
    "DStreams are gone from Spark; use Structured Streaming: df.writeStream.foreachBatch(lambda batch, _: "
    "cluster.train(batch, num_epochs=1)).start(), and call cluster.shutdown() once its query has ended"
)


@users_call
def run(
    sc: Any,
    map_fun: Callable[..., Any],
    tf_args: Any,
    num_executors: int,
    num_ps: int,
    tensorboard: bool = False,
    input_mode: int = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: float = 600,
    queues: Sequence[str] = ("input", "output", "error"),
    eval_node: bool = False,
    release_port: bool = True,
    **options: Any,
) -> TFCluster:
    """Start a cluster whose members call `map_fun(tf_args, ctx)`, and return once all of them do.

    Members are a gang of `sparktrain.run` with backend "tensorflow": they log, checkpoint and restart as any gang.

    Args:
        sc: a SparkContext or SparkSession, a pool of `sparktrain.pool()`, or `sparktrain.local()`.
        map_fun: called in each member with `tf_args` and its `TFNodeContext`; what it returns is dropped.
        tf_args: anything that can be pickled; a list becomes `sys.argv`.
        num_executors: members in all, of which `num_ps` are parameter servers.
        input_mode: `InputMode.SPARK` for `train` and `inference`.
        master_node: the job name of the first worker, "chief" or "master"; None makes it an ordinary worker.
        reservation_timeout: seconds until all members must be in `map_fun`.
        queues: the names of feeds, besides output, error and control.
        eval_node: one of the members is an evaluator, which trains nothing.
        **options: those of `sparktrain.run`, such as dir, name, max_retries and hang_timeout.

    Raises UserError for a call that cannot work, before anything starts; the error of a member that ends before all
    have begun; FormError when members are missing after `reservation_timeout`; InfraError.
    """
    check_not_nested("tensorflowonspark.TFCluster.run")
    _check_call(map_fun, num_executors, num_ps, input_mode, driver_ps_nodes, master_node, eval_node)
    if not release_port:
        warn_once("TFCluster.run(release_port=False) means nothing: sparktrain frees ports when TensorFlow binds them")
    if log_dir is not None and not tensorboard:
        warn_once(
            "TFCluster.run(log_dir=) without tensorboard=True means nothing: the run directory has the event files"
        )
    feeds = {name: PushedFeed(name) for name in queues if name not in NOT_FED} if input_mode == InputMode.SPARK else {}
    if decided := sorted({"workers", "ps", "evaluator", "backend", "data"} & {*options}):
        raise SpecError(f"TFCluster.run({decided[0]}=): num_executors, num_ps and eval_node decide it; leave it out")
    agents, session = _agents_of(sc, options.get("agents"))
    settings = NodeSettings(
        num_ps, master_node, eval_node, tuple(feeds), LOCAL if session is None else default_fs(session), os.getcwd()
    )
    asked: dict[str, Any] = {
        "name": f"tfcluster-{uuid.uuid4().hex[:12]}",
        "start_timeout": reservation_timeout,
        **options,
        "workers": num_executors - num_ps - eval_node,
        "ps": num_ps,
        "evaluator": eval_node,
        "backend": "tensorflow",
        "data": {name: PushedSource(each) for name, each in feeds.items()},
    }
    chosen = RunOptions(**settled(RunKeywords, asked, "run"))
    prepared = compose(node_function(map_fun, tf_args, settings), single({}), chosen)
    display = choose_display(quiet=not chosen.asked["progress"])
    cluster = TFCluster(sc, _background(prepared, agents, feeds, display), feeds, settings, num_executors)
    cluster._start(reservation_timeout)
    return cluster


def _background(
    prepared: PreparedRun, agents: StoppableAgents, feeds: dict[str, PushedFeed], display: Display
) -> BackgroundRun:
    for name, feed in feeds.items():
        feed.place(prepared.store, prepared.layout.feed(name, uuid.uuid4().hex[:8]))

    def close(error: BaseException | None) -> None:
        for feed in feeds.values():
            feed.close(error)

    return BackgroundRun(prepared, agents, display, close)


def _agents_of(sc: Any, wanted: int | None) -> tuple[StoppableAgents, Any]:
    """Where members run, and the session; None without one. Raises SpecError, SessionError."""
    if isinstance(sc, Pool):
        return PoolAgents(sc._agents), None
    if isinstance(sc, LocalMachine):
        return OwnAgents(engine_of(sc), wanted), None
    if hasattr(sc, "parallelize"):
        if sc._jsc is None:  # PySpark has no public word for it
            raise SessionError("sc is a SparkContext that is stopped: pass the active one (spark.sparkContext)")
        from pyspark.sql import SparkSession

        sc = SparkSession(sc)
    elif not hasattr(sc, "createDataFrame"):
        raise SpecError(
            f"sc is {described(sc)}; pass a SparkContext, a SparkSession, a pool of sparktrain.pool(), or "
            "sparktrain.local()"
        )
    if is_stopped(sc):
        raise SessionError("sc belongs to a Spark session that is stopped: make another one")
    return OwnAgents(engine_of(sc), wanted), sc


def _check_call(
    map_fun: Any,
    num_executors: Any,
    num_ps: Any,
    input_mode: Any,
    driver_ps_nodes: Any,
    master_node: Any,
    eval_node: bool,
) -> None:
    """Raise SpecError or FunctionError for a call that cannot work."""
    if driver_ps_nodes:
        raise SpecError(
            "driver_ps_nodes=True would run parameter servers in the driver, where no deadline and no restart covers "
            "them: leave it out, and num_executors counts them on executors"
        )
    for name, value in (("num_executors", num_executors), ("num_ps", num_ps)):
        if type(value) is not int or value < (name == "num_executors"):
            raise SpecError(f"{name} is {described(value)}; pass a whole number")
    if num_executors - num_ps - bool(eval_node) < 1:
        others = f"num_ps ({num_ps}){' and the evaluator' if eval_node else ''}"
        raise SpecError(f"num_executors ({num_executors}) must exceed {others}: at least one member trains")
    if input_mode not in (InputMode.TENSORFLOW, InputMode.SPARK):
        raise SpecError(f"input_mode is {described(input_mode)}; pass InputMode.TENSORFLOW or InputMode.SPARK")
    if eval_node and input_mode == InputMode.SPARK:
        raise SpecError("eval_node=True needs InputMode.TENSORFLOW: no call feeds an evaluator")
    if master_node not in (None, "chief", "master"):
        raise SpecError(f"master_node is {described(master_node)}; pass 'chief', 'master' or None")
    _check_map_fun(map_fun)


def _check_map_fun(map_fun: Any) -> None:
    if not callable(map_fun):
        raise FunctionError(f"map_fun is {described(map_fun)}; pass a function map_fun(args, ctx)")
    try:
        inspect.signature(map_fun).bind(None, None)
    except TypeError as error:
        raise FunctionError(
            f"map_fun is called as map_fun(args, ctx), and {getattr(map_fun, '__name__', map_fun)}"
            f"{inspect.signature(map_fun)} does not take two positional arguments: {error}"
        ) from error
    except ValueError:  # a builtin without a signature
        return


def _check_rows(call: str, rows: Any) -> None:
    """Raise SpecError unless `rows` is an RDD or a DataFrame of a living session, SessionError."""
    if any(each.__name__ == "DStream" for each in type(rows).__mro__):
        raise SpecError(f"cluster.{call}() got a DStream: {_NO_STREAMING}")
    if hasattr(rows, "mapPartitions"):
        if rows.ctx._jsc is None:  # PySpark has no public word for it
            raise SessionError(f"cluster.{call}() got an RDD of a SparkContext that is stopped: make it again")
        return
    if not hasattr(rows, "mapInArrow"):
        raise SpecError(f"cluster.{call}() got {described(rows)}; pass an RDD or a DataFrame")
    if getattr(rows, "isStreaming", False):
        raise SpecError(f"cluster.{call}() got a streaming DataFrame: {_NO_STREAMING}")
    if is_stopped(rows.sparkSession):
        raise SessionError(f"cluster.{call}() got a DataFrame of a session that is stopped: read it again")


def _rows_of(frame: Any) -> Any:
    """The rows of a DataFrame. Raises SessionError for Spark Connect, which has no RDDs."""
    if getattr(frame.sparkSession, "_sc", None) is None:
        raise SessionError(
            "cluster.inference() of a Spark Connect session: it has no RDDs; use sparktrain.predict(model, df), or a "
            "classic session"
        )
    return frame.rdd


def _index(rank: int, settings: NodeSettings, size: int) -> int:
    """The number of a member among those with its role."""
    trainers = size - settings.num_ps - settings.eval_node
    if rank >= trainers:
        return rank - trainers if rank < trainers + settings.num_ps else 0
    return max(0, rank - 1)
