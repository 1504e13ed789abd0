"""A job for YARN: one member that trains until the test ends it, and the secrets that must stay hidden.

    spark-submit yarn_secrets.py FOLDER DIRECTORY

Leaves in FOLDER: `secrets.json`, and `conf.json`, what Spark has for its configuration.
"""

import base64
import json
import sys
from pathlib import Path

from endurance import endure
from pyspark.sql import SparkSession

import sparktrain as st


def main(folder: Path, directory: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    context = spark.sparkContext
    with st.pool(spark, agents=1, preload=["numpy"]) as pool:
        certificates = pool._agents._certificates
        assert certificates is not None
        hadoop = context._jvm.org.apache.hadoop
        held = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
        of_spark = bytes(held.getSecretKey(hadoop.io.Text("sparkCookie")))
        secrets = {"key of agents": certificates.agent.key.splitlines()[2], "secret of Spark": of_spark}
        encoded = {name: base64.b64encode(secret).decode() for name, secret in secrets.items()}
        (folder / "conf.json").write_text(json.dumps(context.getConf().getAll()))
        (folder / "secrets.json").write_text(json.dumps(encoded))
        pool.run(endure, {"folder": str(folder)}, workers=1, backend="none", dir=directory, name="e", progress=False)
    spark.stop()


main(Path(sys.argv[1]), sys.argv[2])
