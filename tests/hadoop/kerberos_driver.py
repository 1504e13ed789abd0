"""A driver on a secured HDFS: one gang that trains until the test ends it, on executors without a ticket.

    python kerberos_driver.py FOLDER DIRECTORY

FOLDER/wanted.json has Spark's settings. Leaves there `secrets.json`, what may be seen nowhere, `conf.json`, what Spark
has for its configuration, and `result.json`.
"""

import base64
import json
import logging
import sys
from pathlib import Path
from typing import Any

import sparktrain as st
from sparktrain.cluster import token_renewer
from sparktrain.cluster.delegation_tokens import Fetched, fetch
from tests.hadoop.endurance import endure
from tests.support.local_spark import spark_session

MASTER = "local-cluster[1,1,1024]"


class Spy:
    """Notes the passwords of all tokens that the driver fetches."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "secrets.json"
        self._secrets: dict[str, str] = {}

    def note(self, name: str, secret: bytes) -> None:
        self._secrets[name] = base64.b64encode(secret).decode()
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._secrets))
        partial.rename(self._path)

    def fetch(self, context: Any, url: str) -> Fetched:
        fetched = fetch(context, url)
        java, held = context._jvm.java, context._jvm.org.apache.hadoop.security.Credentials()
        held.readTokenStorageStream(java.io.DataInputStream(java.io.ByteArrayInputStream(fetched.content)))
        for token in java.util.ArrayList(held.getAllTokens()):
            number = token.decodeIdentifier().getSequenceNumber()
            self.note(f"password of token {number}", bytes(token.getPassword()))
        return fetched


def main(folder: Path, directory: str) -> None:
    logging.basicConfig(level=logging.INFO)
    conf, spy = json.loads((folder / "wanted.json").read_text()), Spy(folder)
    token_renewer.fetch = spy.fetch
    with spark_session(MASTER, folder / "spark", conf) as spark, st.pool(spark, agents=1, preload=["numpy"]) as pool:
        certificates = pool._agents._certificates
        assert certificates is not None
        spy.note("key of agents", certificates.agent.key.splitlines()[2])
        (folder / "conf.json").write_text(json.dumps(spark.sparkContext.getConf().getAll()))
        result = pool.run(
            endure, {"folder": str(folder)}, workers=1, backend="none", dir=directory, name="e", progress=False
        )
        (folder / "result.json").write_text(json.dumps(result.metrics))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
