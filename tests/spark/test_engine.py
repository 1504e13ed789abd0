"""The contract of an engine on Spark, with real executors."""

import pytest
from pyspark.sql import SparkSession

from sparktrain.driver.engines.spark_engine import SparkEngine, spark_engine
from tests.support.engine_contract import EngineContract


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> SparkEngine:
        return spark_engine(spark)
