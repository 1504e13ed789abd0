"""A TensorFlow cluster on executors: starts it, feeds it, and shuts it down. The driver's side of a program."""

import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sparktrain.api import agents_of
from sparktrain.base.boundary import users_call
from sparktrain.base.nesting import check_not_nested
from sparktrain.cluster.spark_facts import is_stopped
from sparktrain.config.data_sources import PushedSource
from sparktrain.config.param_values import described, did_you_mean
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.agent_sources import OpenAgents
from sparktrain.driver.background_run import BackgroundRun
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.pushed_feed import PushedFeed
from sparktrain.driver.options import RunOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import RunStoppedError, SessionError, SpecError
from sparktrain.search.space import single
from sparktrain.store.url import open_store
from sparktrain.tensorflowonspark.map_functions import check_map_function, files_of, place_of
from sparktrain.tensorflowonspark.node_context import NodeSettings, executor_of, job_of, node_function
from sparktrain.tensorflowonspark.node_handle import NOT_FED
from sparktrain.tensorflowonspark.paths import absolute_path
from sparktrain.tensorflowonspark.single_warnings import warn_once
from sparktrain.views.board.board import Board

NO_STREAMING = (
    "DStreams are gone from Spark; use Structured Streaming: df.writeStream.foreachBatch(lambda batch, _: "
    "cluster.train(batch, num_epochs=1)).start(), and call cluster.shutdown() once its query has ended"
)
"""What to write in place of what Spark does not have any more."""

if TYPE_CHECKING:
    from pyspark import RDD

EPOCHS = 10
"""How often `train` sends the rows where `num_epochs` is 0, as the original does."""
END_S = 30.0
"""How long members that are ended may take, and the end of a run be written."""

_REMOVED = {
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
        self._board: Board | None = None
        self._down = False

    def __getattr__(self, name: str) -> NoReturn:
        why = _REMOVED.get(name)
        message = f"TFCluster has no attribute {name!r}{did_you_mean(name, [*vars(self), *vars(TFCluster)])}"
        raise AttributeError(message if why is None else f"TFCluster.{name} is gone: {why}")

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
        from sparktrain.driver.feeds.feed_job import PushJob  # a cluster without feeds needs no Arrow

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
        rows = dataRDD if hasattr(dataRDD, "mapPartitions") else rows_of(dataRDD)
        ticket = feed.ticket(feed_timeout)
        if ticket is None:
            self._run.result()
            raise SpecError("cluster.inference() comes after the members have returned: start another cluster")
        from sparktrain.cluster.dataframes.answered_feed import infer_rdd_task

        answered: RDD[Any] = rows.mapPartitions(partial(infer_rdd_task, ticket=ticket, directory=feed.directory))
        return answered

    @users_call
    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """End the feeds, and wait until the members have returned. A second call does nothing.

        `grace_secs` limits the wait in seconds, 0 leaves it to `timeout`, where -1 is no limit; members that are still
        there are ended. Raises what the members raised, RunStoppedError for members that did not return in time.
        """
        if ssc is not None:
            raise SpecError(f"cluster.shutdown(ssc): {NO_STREAMING}")
        if self._down:
            return
        self._down = True
        # A member stays for this when its function has returned: the tasks that feed it would miss it.
        for feed in self._feeds.values():
            feed.end()
        limit = grace_secs or (None if timeout < 0 else timeout)
        try:
            self._end(limit)
        finally:
            if self._board is not None:
                self._board.close()

    def cancel(self, reason: str) -> None:
        """End the members at once; `shutdown` then raises RunStoppedError with the reason. Does not block."""
        self._run.stop(reason)

    def tensorboard_url(self) -> str | None:
        """The URL of the cluster's TensorBoard, with its token; None without one. Blocks on the store."""
        return self._board.url if self._board is not None else self._run.board_url()

    # ---- internal

    def _end(self, limit: float | None) -> None:
        """Wait for the members' end, and end those that are late. Raises the error of the run."""
        if not self._run.join(limit):
            moment = "after the end of their feed" if self._feeds else "after cluster.shutdown()"
            late = f"members have not returned {limit:g} s {moment}"
            self._run.stop(late)
            if not self._run.join(END_S):
                raise RunStoppedError(f"{late}, and their end is not known after {END_S:g} s more; see the run's logs")
        self._run.result()

    def _show(self, log_dir: str, engine: Engine) -> None:
        """Serve TensorBoard over a folder, where the coordinator listens. Raises SpecError, OSError."""
        folder = absolute_path(log_dir, self.defaultFS, self.working_dir)
        address = engine.address()
        self._board = Board.start(
            open_store(StoreAddress(folder)), "", bind=address.bind, host=address.in_browsers
        )  # fmt: skip

    def _start(self, timeout_s: float) -> None:
        """Start the members, and wait for them. Raises as `run`."""
        self._run.start()
        try:
            members = self._run.wait_for_members(timeout_s)
        # Also for Ctrl-C: the caller does not have the cluster yet, and could not end its members.
        except BaseException:
            self._run.stop("the cluster did not start")
            if self._board is not None:
                self._board.close()
            raise
        for member in members:
            index = _index(member.rank, self._settings, len(members))
            job, task = job_of(member.role.value, index, self._settings.master_node)
            number = executor_of(member.rank, len(members), self._settings)
            self.cluster_info.append(
                {"executor_id": number, "host": member.host, "job_name": job, "task_index": task}
            )  # fmt: skip
        self.cluster_info.sort(key=lambda node: int(node["executor_id"]))

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
            feed_names = ", ".join(map(repr, self._feeds))
            raise SpecError(
                f"qname is {qname!r}, the feeds of this cluster are {feed_names}{did_you_mean(qname, self._feeds)}"
            )
        check_rows(call, rows)
        return self._feeds[qname]


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
    """Start a cluster of members that call `map_fun(tf_args, ctx)`, and return once all of them do.

    Members are a gang of `sparktrain.run` with backend "tensorflow": they log, checkpoint and restart as any gang.

    Args:
        sc: a SparkContext or SparkSession, a pool of `sparktrain.pool()`, or `sparktrain.local()`.
        map_fun: called in each member with `tf_args` and its `TFNodeContext`; what it returns is dropped.
        tf_args: anything that can be pickled; a list becomes `sys.argv`.
        num_executors: members in all, `num_ps` parameter servers among them.
        tensorboard: serve TensorBoard, over the events in `log_dir`, or over what members write to their own log
            directories.
        input_mode: `InputMode.SPARK` for `train` and `inference`.
        master_node: the job name of the first worker, "chief" or "master"; None makes it an ordinary worker.
        reservation_timeout: seconds until all members must be in `map_fun`.
        queues: the names of feeds, besides output, error and control.
        eval_node: one of the members is an evaluator, which trains nothing.
        **options: those of `sparktrain.run`, such as dir, name, max_retries and hang_timeout.

    Raises UserError for a call that cannot work, before anything starts; the error of a member that ends before all
    have started; FormError when members are missing after `reservation_timeout`; InfraError.
    """
    check_not_nested("tensorflowonspark.TFCluster.run")
    _check_members(num_executors, num_ps, eval_node, master_node)
    _check_modes(input_mode, driver_ps_nodes, eval_node, {*options})
    check_map_function(map_fun, "map_fun")
    _warn_of_options(release_port, log_dir, tensorboard)
    feeds = {name: PushedFeed(name) for name in queues if name not in NOT_FED} if input_mode == InputMode.SPARK else {}
    place = place_of(sc)
    settings = NodeSettings(
        num_ps=num_ps,
        master_node=master_node,
        eval_node=eval_node,
        feeds=tuple(feeds),
        default_fs=files_of(place),
        working_dir=os.getcwd(),
    )
    keywords: dict[str, Any] = {
        "name": f"tfcluster-{uuid.uuid4().hex[:12]}",
        "start_timeout": reservation_timeout,
        "tensorboard": bool(tensorboard and log_dir is None),
        **options,
        "workers": num_executors - num_ps - eval_node,
        "ps": num_ps,
        "evaluator": eval_node,
        "backend": "tensorflow",
        "data": {name: PushedSource(feed) for name, feed in feeds.items()},
    }
    chosen = RunOptions(**keywords)
    call = compose(node_function(map_fun, tf_args, settings), single({}), chosen)
    agents = agents_of(place)
    cluster = TFCluster(sc, _background(call, agents, feeds), feeds, settings, num_executors)
    if tensorboard and log_dir is not None:
        cluster._show(log_dir, agents.engine)
    cluster._start(reservation_timeout)
    return cluster


def _background(call: CheckedCall, agents: OpenAgents, feeds: dict[str, PushedFeed]) -> BackgroundRun:
    """The run of a cluster, not yet started."""
    for name, feed in feeds.items():
        feed.place(call.definition.store, call.definition.layout.feed(name, uuid.uuid4().hex[:8]))

    def close(error: BaseException | None) -> None:
        for feed in feeds.values():
            feed.close(error)

    return BackgroundRun(call, agents, close)


def _warn_of_options(release_port: Any, log_dir: str | None, tensorboard: Any) -> None:
    """Warn of options that mean nothing here, once each."""
    if not release_port:
        warn_once("TFCluster.run(release_port=False) means nothing: sparktrain frees ports when TensorFlow binds them")
    if log_dir is not None and not tensorboard:
        warn_once("TFCluster.run(log_dir=) without tensorboard=True means nothing: no TensorBoard reads the folder")


def _check_members(num_executors: Any, num_ps: Any, eval_node: Any, master_node: Any) -> None:
    """Raise SpecError for members that no cluster can have."""
    for name, value in (("num_executors", num_executors), ("num_ps", num_ps)):
        if type(value) is not int or value < (name == "num_executors"):
            raise SpecError(f"{name} is {described(value)}; pass a whole number")
    if num_executors - num_ps - bool(eval_node) < 1:
        other_members = f"num_ps ({num_ps}){' and the evaluator' if eval_node else ''}"
        raise SpecError(f"num_executors ({num_executors}) must exceed {other_members}: at least one member trains")
    if master_node not in (None, "chief", "master"):
        raise SpecError(f"master_node is {described(master_node)}; pass 'chief', 'master' or None")


def _check_modes(input_mode: Any, driver_ps_nodes: Any, eval_node: Any, options: set[str]) -> None:
    """Raise SpecError for options that exclude each other."""
    if driver_ps_nodes:
        raise SpecError(
            "driver_ps_nodes=True would run parameter servers in the driver, where no deadline and no restart covers "
            "them: leave it out, and num_executors counts them on executors"
        )
    if input_mode not in (InputMode.TENSORFLOW, InputMode.SPARK):
        raise SpecError(f"input_mode is {described(input_mode)}; pass InputMode.TENSORFLOW or InputMode.SPARK")
    if eval_node and input_mode == InputMode.SPARK:
        raise SpecError("eval_node=True needs InputMode.TENSORFLOW: no call feeds an evaluator")
    if "local_steps" in options:
        raise SpecError(
            "TFCluster.run(local_steps=): programs for TensorFlowOnSpark average gradients by strategies of "
            "TensorFlow; leave it out, or train by sparktrain.run and ctx.distribute"
        )
    if decided := sorted({"workers", "ps", "evaluator", "backend", "data"} & options):
        raise SpecError(f"TFCluster.run({decided[0]}=): num_executors, num_ps and eval_node decide it; leave it out")


def _index(rank: int, settings: NodeSettings, size: int) -> int:
    """The number of a member among those with its role."""
    trainers = size - settings.num_ps - settings.eval_node
    if rank >= trainers:
        return rank - trainers if rank < trainers + settings.num_ps else 0
    return max(0, rank - 1)


def check_rows(call: str, rows: Any) -> None:
    """Raise SpecError unless `rows` is an RDD or a DataFrame of a living session, SessionError."""
    if any(base.__name__ == "DStream" for base in type(rows).__mro__):
        raise SpecError(f"cluster.{call}() got a DStream: {NO_STREAMING}")
    if hasattr(rows, "mapPartitions"):
        if rows.ctx._jsc is None:  # PySpark has no public word for it
            raise SessionError(f"cluster.{call}() got an RDD of a SparkContext that is stopped: make it again")
        return
    if not hasattr(rows, "mapInArrow"):
        raise SpecError(f"cluster.{call}() got {described(rows)}; pass an RDD or a DataFrame")
    if getattr(rows, "isStreaming", False):
        raise SpecError(f"cluster.{call}() got a streaming DataFrame: {NO_STREAMING}")
    if is_stopped(rows.sparkSession):
        raise SessionError(f"cluster.{call}() got a DataFrame of a session that is stopped: read it again")


def rows_of(frame: Any) -> Any:
    """The rows of a DataFrame. Raises SessionError for Spark Connect, which has no RDDs."""
    if getattr(frame.sparkSession, "_sc", None) is None:
        raise SessionError(
            "cluster.inference() of a Spark Connect session: it has no RDDs; use sparktrain.predict(model, df), or a "
            "classic session"
        )
    return frame.rdd
