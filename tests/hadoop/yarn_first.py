"""A Spark job of one small task: after it, the nodes of its driver and of its executors have unpacked the pack."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(1).rdd.map(str).collect()
spark.stop()
