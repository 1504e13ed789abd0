"""What calls of a cluster refuse before anything starts."""

from typing import Any

from sparktrain.cluster.spark_facts import is_stopped
from sparktrain.config.param_values import described
from sparktrain.errors import SessionError, SpecError

NO_STREAMING = (
    "DStreams are gone from Spark; use Structured Streaming: df.writeStream.foreachBatch(lambda batch, _: "
    "cluster.train(batch, num_epochs=1)).start(), and call cluster.shutdown() once its query has ended"
)
"""What to write in place of what Spark does not have any more."""


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
