"""`TFNode` of TensorFlowOnSpark: what a training function uses of its node, above all `DataFeed`."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from sparktrain.errors import DataError, SpecError
from sparktrain.tensorflowonspark.node_handle import NodeHandle
from sparktrain.tensorflowonspark.paths import absolute_path

if TYPE_CHECKING:
    import pyarrow as pa

    from sparktrain.training.data.stream.stream_data import StreamData


# A Protocol, because `node_context`, which has the class, imports this module.
class NodePlace(Protocol):
    """What paths and servers need of `ctx`."""

    defaultFS: str  # noqa: N815 # TensorFlowOnSpark's name
    working_dir: str
    cluster_spec: Mapping[str, list[str]]
    job_name: str
    task_index: int


class DataFeed:
    """The rows that `cluster.train` and `cluster.inference` send to this member. One thread uses it."""

    def __init__(
        self,
        mgr: NodeHandle,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        """`input_mapping` names the tensor of each column; columns are in the order of their names.

        With `train_mode=False` a batch ends at the end of a partition. `qname_out` has no meaning here: results return
        to the task that sent the rows.
        """
        self.mgr = mgr
        self.train_mode = train_mode
        self.qname_in = qname_in
        self.qname_out = qname_out
        self.input_tensors = None if input_mapping is None else [input_mapping[name] for name in sorted(input_mapping)]
        self._columns = () if input_mapping is None else tuple(sorted(input_mapping))
        self._opened: StreamData | None = None

    @property
    def done_feeding(self) -> bool:
        """As `should_stop()`."""
        return self.should_stop()

    def next_batch(self, batch_size: int) -> Any:
        """The next rows in a list, or with `input_mapping` a dict of lists, the values of each tensor.

        Fewer than `batch_size` at the end of the feed, with `train_mode=False` at the end of each partition, and for
        rows of `cluster.inference` always there; none after the end. Blocks for rows without limit. Raises DataError
        for rows with another number of values than `input_mapping` has columns, and StreamError for a feed that broke
        off, or where the last rows of `cluster.inference` have no results yet.
        """
        stream = self._stream
        rows = [] if stream.should_stop() else stream.next_batch(batch_size, whole=not self.train_mode)
        return rows if self.input_tensors is None else self._by_tensor(self.input_tensors, rows)

    def next_arrow(self, batch_size: int) -> "pa.RecordBatch | None":
        """As `next_batch`, for a DataFrame: its rows as a record batch; None when there are none any more.

        TensorFlowOnSpark has no such method; it spares the Python objects. Raises StreamError, also for an RDD's rows.
        """
        stream = self._stream
        return None if stream.should_stop() else stream.next_arrow(batch_size)

    def should_stop(self) -> bool:
        """Whether the feed has ended: `next_batch` gives no more rows."""
        return self._opened is not None and self._opened.should_stop()

    def batch_results(self, results: Iterable[Any]) -> None:
        """The results for the rows of the last `next_batch`, one for each, in order. Does not block.

        Raises StreamError for another number of results than rows, and for some that cannot be pickled.
        """
        self._stream.answer(results)

    def terminate(self) -> None:
        """Need no more rows: `cluster.train` returns early, and Spark computes no more of its rows."""
        self._stream.terminate(ask=True)

    @property
    def _stream(self) -> "StreamData":
        if self._opened is None:
            self._opened = self.mgr.stream(self.qname_in)
        return self._opened

    def _by_tensor(self, tensors: list[str], rows: list[Any]) -> dict[str, list[Any]]:
        if not rows:
            return {tensor: [] for tensor in tensors}
        try:
            widths = set(map(len, rows))
        except TypeError as error:
            kind = next(type(row).__name__ for row in rows if not hasattr(row, "__len__"))
            raise DataError(f"{self._expected} is a {kind}: map it to a tuple of these columns") from error
        if widths != {len(tensors)}:
            wrong = next(width for width in sorted(widths) if width != len(tensors))
            raise DataError(f"{self._expected} has {wrong} values: select these columns, in this order, before feeding")
        return dict(zip(tensors, map(list, zip(*rows, strict=True)), strict=True))

    @property
    def _expected(self) -> str:
        names = ", ".join(self._columns)
        return f"input_mapping has {len(self._columns)} columns ({names}), and a row of the feed {self.qname_in!r}"


def hdfs_path(ctx: NodePlace, path: str) -> str:
    """`path` as a URL: itself with a scheme, else beneath `ctx.defaultFS`.

    A relative one is beneath the user's home in HDFS and ViewFs, and else beneath `ctx.working_dir`.
    """
    return absolute_path(path, ctx.defaultFS, ctx.working_dir)


def start_cluster_server(ctx: NodePlace, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
    """A pair of `tf.train.ClusterSpec` and the `tf.distribute.Server` of this node, for between-graph replication.

    The node has the GPUs of its slot, whatever `num_gpus` is. Raises SpecError for `rdma`, which TensorFlow 2 does not
    have.
    """
    if rdma:
        raise SpecError("start_cluster_server(rdma=True): TensorFlow 2 has no grpc+verbs protocol; leave rdma out")
    import tensorflow as tf

    cluster = tf.train.ClusterSpec(ctx.cluster_spec)
    return cluster, tf.distribute.Server(cluster, job_name=ctx.job_name, task_index=ctx.task_index)


def export_saved_model(sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the graph and the variables of a `tf.compat.v1.Session` as a SavedModel into `export_dir`.

    `tag_set` has tags with commas between them. Each signature is a dict of `inputs` and `outputs`, which are tensors
    by name, and perhaps of `method_name`, by default its own key. Blocks until the files are written. Raises what
    TensorFlow raises.
    """
    import tensorflow as tf

    v1 = tf.compat.v1.saved_model
    definitions = {
        key: v1.build_signature_def(
            inputs={name: v1.build_tensor_info(tensor) for name, tensor in signature["inputs"].items()},
            outputs={name: v1.build_tensor_info(tensor) for name, tensor in signature["outputs"].items()},
            method_name=signature.get("method_name", key),
        )
        for key, signature in signatures.items()
    }
    graph = sess.graph
    graph._unsafe_unfinalize()  # a MonitoredTrainingSession has finalized it, and the builder adds operations
    builder = v1.Builder(export_dir)
    builder.add_meta_graph_and_variables(sess, tag_set.split(","), signature_def_map=definitions, clear_devices=True)
    graph.finalize()
    builder.save()


def next_batch(mgr: object, batch_size: int, qname: str = "input") -> NoReturn:
    """Raises SpecError, as TensorFlowOnSpark 2 raises an Exception: see `DataFeed`."""
    _refuse("next_batch(mgr, batch_size)", "next_batch(batch_size)")


def batch_results(mgr: object, results: Iterable[Any], qname: str = "output") -> NoReturn:
    """Raises SpecError, as TensorFlowOnSpark 2 raises an Exception: see `DataFeed`."""
    _refuse("batch_results(mgr, results)", "batch_results(results)")


def terminate(mgr: object, qname: str = "input") -> NoReturn:
    """Raises SpecError, as TensorFlowOnSpark 2 raises an Exception: see `DataFeed`."""
    _refuse("terminate(mgr)", "terminate()")


def release_port(ctx: object) -> None:
    """Do nothing: sparktrain holds no port that TensorFlow wants to bind."""


def _refuse(old: str, new: str) -> NoReturn:
    raise SpecError(f"DEPRECATED: TFNode.{old} is gone; write feed = ctx.get_data_feed(), and then feed.{new}")
