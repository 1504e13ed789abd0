"""Where a program wants its processes: what it passes as `sc`."""

from typing import Any

from sparktrain.api import Pool, agents_of
from sparktrain.cluster.spark_facts import is_stopped
from sparktrain.config.param_values import described
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.errors import SessionError, SpecError
from sparktrain.tensorflowonspark.paths import LOCAL, default_fs


def place_of(sc: Any) -> Any:
    """A pool, this machine, or the session of a SparkContext. Raises SpecError, SessionError for a stopped one."""
    if isinstance(sc, Pool | LocalMachine):
        return sc
    if hasattr(sc, "createDataFrame"):
        if is_stopped(sc):
            raise SessionError("sc is a Spark session that is stopped: pass the active one")
        return sc
    if not hasattr(sc, "parallelize"):
        raise SpecError(
            f"sc is {described(sc)}; pass a SparkContext, a SparkSession, a pool of sparktrain.pool(), or "
            "sparktrain.local()"
        )
    if sc._jsc is None:  # PySpark has no public word for it
        raise SessionError("sc is a SparkContext that is stopped: pass the active one (spark.sparkContext)")
    from pyspark.sql import SparkSession

    return SparkSession(sc)


def files_of(place: Any) -> str:
    """The default file system at a place: that of a session's Hadoop configuration, or of this machine."""
    if isinstance(place, Pool):
        holder = agents_of(place).engine.holder
        return default_fs(holder) if hasattr(holder, "_jsc") else LOCAL
    return LOCAL if isinstance(place, LocalMachine) else default_fs(place)
