"""Which engine a call uses."""

from typing import TYPE_CHECKING

from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.engines.local_engine import LocalEngine, LocalMachine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_of(spark: "SparkSession | LocalMachine | None") -> Engine:
    """The engine of what a user passes as `spark=`, by default of the active session. Blocks on a session.

    Raises UserError.
    """
    if isinstance(spark, LocalMachine):
        return LocalEngine(spark)
    from sparktrain.driver.engines.spark_engine import spark_engine  # a run on this machine alone needs no Spark

    return spark_engine(spark)
