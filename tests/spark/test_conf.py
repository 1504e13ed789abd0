"""Spark knows the properties of conf/."""

import re

import pytest
from pyspark.sql import SparkSession

from tests.conf import CONF, properties

OBJECTS = ("internal.config.package", "internal.config.Network", "internal.config.UI", "deploy.yarn.config.package",
           "deploy.k8s.Config")  # fmt: skip
"""Where Spark declares its properties, once they are loaded."""
OTHERS = re.compile(
    r"spark\.master|spark\.(executor|task)\.resource\.gpu\.(amount|discoveryScript|vendor)"
    r"|spark\.kubernetes\.executor\.node\.selector\.\w+"
)
"""What Spark reads without declaring it."""


@pytest.mark.parametrize("name", sorted(path.name for path in CONF.glob("*.conf")))
def test_spark_knows_every_property(spark: SparkSession, name: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    for each in OBJECTS:
        jvm.java.lang.Class.forName(f"org.apache.spark.{each}$")
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    unknown = [key for key in properties(name) if not OTHERS.fullmatch(key) and known.findEntry(key) is None]
    assert unknown == []
