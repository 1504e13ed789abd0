"""A standalone Spark with a Connect server, and a client that drops every inbound connection: each on its own host.

HDFS, on the machine that all of them reach, has the runs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparktrain.cluster.spark_session import jvm_here
from tests.faults.standalone import Standalone, standalone
from tests.support.hadoop import Hdfs, hdfs
from tests.support.hosts import Host, Network, bridged_hosts
from tests.support.local_spark import spark_home
from tests.support.processes import Sighted, descendants, wait_until

READY_S = 120.0
PORT = 15002
WORKERS = 2
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_REFUSE = """
add table inet far
add chain inet far input { type filter hook input priority 0; }
add rule inet far input iifname != "lo" tcp flags & (syn|ack) == syn counter drop
"""


@dataclass
class FarCluster:
    """HDFS, two workers, a Connect server, and the host of the client."""

    network: Network
    hdfs: Hdfs
    spark: Standalone
    server: Host
    client: Host

    @property
    def url(self) -> str:
        """For `SparkSession.builder.remote`."""
        return f"sc://{self.server.address}:{PORT}"

    @property
    def runs(self) -> str:
        """A directory for runs, on HDFS."""
        return f"{self.hdfs.url}/runs"

    @property
    def env(self) -> dict[str, str]:
        """For the environment of a client."""
        return {**os.environ, **self.hdfs.env}

    def refused(self) -> int:
        """How many connections to the client its firewall has dropped."""
        rules = json.loads(self.client.run("nft", "-j", "list", "ruleset"))["nftables"]
        counters = [part["counter"]["packets"] for rule in rules for part in rule.get("rule", {}).get("expr", ())
                    if "counter" in part]  # fmt: skip
        return int(sum(counters))

    def start_client(self, line: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        """A program on the host of the client."""
        with log.open("wb") as output:
            return subprocess.Popen([*self.client.enter, *line], stdout=output, stderr=subprocess.STDOUT, env=self.env)


@contextmanager
def far_cluster(folder: Path, conf: Mapping[str, str] | None = None) -> Iterator[FarCluster]:
    """The cluster, ready, with `conf` of its server; killed at the end. Needs root. Blocks for a minute."""
    with bridged_hosts(WORKERS + 2) as network, ExitStack() as stack:
        *workers, server, client = network.hosts
        subprocess.run([*client.enter, "nft", "-f", "-"], input=_REFUSE.encode(), check=True, timeout=30)
        store = stack.enter_context(hdfs(folder / "hdfs", host=network.address))
        enter = [list(host.enter) for host in workers]
        spark = stack.enter_context(standalone(folder, [host.address for host in workers], network.address, enter))
        log = folder / "connect.log"
        at_executors = {f"spark.executorEnv.{name}": value for name, value in store.env.items()}
        process = _start_server(folder, server, spark.url, log, {**at_executors, **(conf or {})})
        stack.callback(process.wait)
        stack.callback(_kill_all, process.pid)
        wait_until(lambda: "Spark Connect server started" in log.read_text(errors="replace"), READY_S, "Connect serves")
        yield FarCluster(network, store, spark, server, client)


def _start_server(
    folder: Path, host: Host, master: str, log: Path, more: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    conf = {
        "spark.driver.host": host.address,
        "spark.driver.bindAddress": host.address,
        "spark.connect.grpc.binding.address": host.address,
        "spark.connect.grpc.binding.port": str(PORT),
        "spark.executor.memory": "1024m",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.executor.extraJavaOptions": jvm_here(),
        "spark.driver.extraJavaOptions": jvm_here(),
        **more,
    }
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    program = os.path.join(spark_home(), "bin", "spark-submit")
    env = {**os.environ, "SPARK_HOME": spark_home(), "SPARK_LOCAL_IP": host.address, "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as output:
        return subprocess.Popen(
            [*host.enter, program, "--master", master, "--class", _SERVER, *words],
            env=env, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip


def _kill_all(pid: int) -> None:
    Sighted([pid, *(process.pid for process in descendants(pid))]).kill()
