"""Which engine a call uses."""

from typing import TYPE_CHECKING

from sparktrain.driver.engines.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_of(spark: "SparkSession | None") -> Engine:
    """The engine of the session that a user passes, by default the active one. Blocks on a session.

    Raises UserError.
    """
    from sparktrain.driver.engines.spark_engine import spark_engine  # who needs the engine of Spark imports it

    return spark_engine(spark)
