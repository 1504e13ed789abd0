"""Checks of what programs for TensorFlowOnSpark pass: functions, and as `sc` where they want their processes."""

import inspect
from typing import Any

from sparktrain.api import Pool, agents_of
from sparktrain.cluster.spark_facts import is_stopped
from sparktrain.config.param_values import described
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.errors import FunctionError, SessionError, SpecError
from sparktrain.tensorflowonspark.paths import LOCAL, default_fs
from sparktrain.usercode.closure import describe


def check_map_function(function: Any, name: str) -> None:
    """Raise FunctionError unless the function can be called with two arguments, which are args and ctx."""
    if not callable(function):
        raise FunctionError(f"{name} is a {type(function).__name__}; pass a function: def {name}(args, ctx)")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise FunctionError(
            f"{name} is {describe(function)}, which cannot be called with two arguments ({error}): write def "
            f"{name}(args, ctx)"
        ) from error
    except ValueError:  # a builtin without a signature
        return


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
