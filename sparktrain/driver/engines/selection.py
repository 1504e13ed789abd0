"""Chooses the engine of a call."""

from typing import TYPE_CHECKING

from sparktrain.base.optional_packages import require_spark
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.engines.local_engine import LocalEngine, LocalMachine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_of(spark: "SparkSession | LocalMachine | None") -> Engine:
    """The engine for the value of `spark=`; None is the active session. Blocks on a session.

    Raises UserError.
    """
    if isinstance(spark, LocalMachine):
        return LocalEngine(spark)
    require_spark("spark=")
    from sparktrain.driver.engines.spark_engine import spark_engine  # a local run must not import PySpark

    return spark_engine(spark)
