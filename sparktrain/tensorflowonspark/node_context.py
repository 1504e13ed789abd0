"""What `map_fun(args, ctx)` gets as `ctx` in a member, and the training function of the run around it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.config.uses import RUNS_EVERYWHERE
from sparktrain.tensorflowonspark import old_programs
from sparktrain.tensorflowonspark.node_handle import ERROR, NodeHandle
from sparktrain.tensorflowonspark.paths import absolute_path

if TYPE_CHECKING:
    from sparktrain.tensorflowonspark.TFNode import DataFeed
    from sparktrain.training.context import TrainContext


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What every member knows about its cluster."""

    num_ps: int
    master_node: str | None
    """The job name of rank 0; None makes it a worker as the others."""
    eval_node: bool
    feeds: tuple[str, ...]
    """The feeds of the cluster; none where members read their data themselves."""
    default_fs: str
    working_dir: str


class TFNodeContext:
    """One member of a cluster, with the attributes that programs for TensorFlowOnSpark read."""

    tmp_socket = None
    """The original reserves a port by it; members here hold their port in another way."""

    def __init__(self, context: "TrainContext", settings: NodeSettings) -> None:
        self.sparktrain = context
        """The context of sparktrain: checkpoints, reports, the ring."""
        self.cluster_spec: Mapping[str, list[str]] = job_addresses(context.cluster_spec, settings.master_node)
        """The `host:port` of the members of each job, an argument of `tf.train.ClusterSpec`."""
        self.job_name, self.task_index = job_of(context.role, context.index, settings.master_node)
        self.executor_id = executor_of(context.rank, context.size, settings)
        """The number of this member as the original counts: parameter servers, master, evaluator, workers."""
        self.worker_num = self.executor_id
        self.defaultFS = settings.default_fs
        """The default file system of the driver's Hadoop configuration, such as `hdfs://namenode:8020`."""
        self.working_dir = settings.working_dir
        """The folder in which the driver runs."""
        self.mgr = NodeHandle(settings.feeds, context.stream)

    @property
    def num_workers(self) -> int:
        """The number of members that train, the master among them."""
        return sum(len(self.cluster_spec.get(job, ())) for job in ("master", "chief", "worker"))

    def absolute_path(self, path: str) -> str:
        """The URL of `path`: with a slash in front beneath `defaultFS`, else beneath the home or `working_dir`."""
        return absolute_path(path, self.defaultFS, self.working_dir)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> "DataFeed":
        """The rows that the driver sends to this member. Does not block; see `TFNode.DataFeed`."""
        from sparktrain.tensorflowonspark.TFNode import DataFeed  # it loads Arrow

        return DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
        """The cluster and the TensorFlow server of this member: see `TFNode.start_cluster_server`."""
        from sparktrain.tensorflowonspark.TFNode import start_cluster_server

        return start_cluster_server(self, num_gpus, rdma)

    def export_saved_model(self, sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Any]) -> None:
        """Write a session's graph as a SavedModel: see `TFNode.export_saved_model`."""
        from sparktrain.tensorflowonspark.TFNode import export_saved_model

        export_saved_model(sess, export_dir, tag_set, signatures)

    def release_port(self) -> None:
        """Nothing to do: sparktrain frees a member's port when TensorFlow binds it."""


def job_addresses(cluster: Mapping[str, list[str]], master_node: str | None) -> dict[str, list[str]]:
    """The cluster of a gang, with rank 0 under the name of the master, or as the first worker."""
    chief = cluster.get("chief", [])
    workers = cluster.get("worker", [])
    named = {master_node: chief, "worker": workers} if master_node is not None else {"worker": [*chief, *workers]}
    other_jobs = {name: addresses for name, addresses in cluster.items() if name not in ("chief", "worker")}
    return {name: list(addresses) for name, addresses in {**other_jobs, **named}.items() if addresses}


def job_of(role: str, index: int, master_node: str | None) -> tuple[str, int]:
    """Job name and task index of a member with this role in its gang."""
    if role == "chief":
        return (master_node, 0) if master_node is not None else ("worker", 0)
    if role == "worker" and master_node is None:
        return role, index + 1
    return role, index


def executor_of(rank: int, size: int, settings: NodeSettings) -> int:
    """The number of a member as the original assigns executors: servers, master, evaluator, workers."""
    trainers = size - settings.num_ps - settings.eval_node
    if rank >= trainers + settings.num_ps:  # the evaluator
        return settings.num_ps + (settings.master_node is not None)
    if rank >= trainers:
        return rank - trainers
    if rank == 0 and settings.master_node is not None:
        return settings.num_ps
    return settings.num_ps + settings.eval_node + rank


def node_function(map_fun: Callable[..., Any], tf_args: Any, settings: NodeSettings) -> Callable[..., None]:
    """The training function of the run: it calls `map_fun(tf_args, ctx)` in each member."""

    def node(ctx: Any) -> None:
        from sparktrain.tensorflowonspark.node_context import run_node

        run_node(ctx, map_fun, tf_args, settings)

    if settings.num_ps:
        setattr(node, RUNS_EVERYWHERE, True)
    node.__name__ = node.__qualname__ = getattr(map_fun, "__name__", "map_fun")
    node.__module__ = getattr(map_fun, "__module__", "__main__")  # its imports are the user's
    return node


def run_node(context: "TrainContext", map_fun: Callable[..., Any], tf_args: Any, settings: NodeSettings) -> None:
    """Call `map_fun` in this member, and drop what its feeds still get until their end. Raises what it raises."""
    node = TFNodeContext(context, settings)
    if isinstance(tf_args, list):
        sys.argv = [str(argument) for argument in tf_args]
    old_programs.accept()
    map_fun(tf_args, node)
    errors = node.mgr.get_queue(ERROR)
    if not errors.empty():
        raise RuntimeError(str(errors.get_nowait()))
    node.mgr.set("state", "terminating")
    for name in settings.feeds:
        # The tasks that feed this member would miss it: it refuses rows until the driver ends the feed.
        node.mgr.stream(name).wait_for_end()
    node.mgr.set("state", "stopped")
