"""The Spark session of benchmarks: two executor processes with one slot each, on this machine, and quiet."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from sparktrain.state.agents import AgentState, AgentStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparktrain import Pool

MASTER = "local-cluster[2,1,2048]"
SLOTS = 2
FRESH_WORKERS = {"spark.python.worker.reuse": "false"}
"""Configuration of a rival: plain Spark with a new Python process for each task."""

_STDERR = 2


@contextmanager
def session(conf: Mapping[str, str] | None = None, master: str = MASTER) -> "Iterator[tuple[SparkSession, str]]":
    """A warm session, and a folder for run directories. Both executors are up and have run Python."""
    # Here, for benchmarks on a machine without Spark use the other functions of this module.
    from tests.support.local_spark import spark_session

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sparktrain-benchmark-")))
        log = folder / "spark.log"
        try:
            with stderr_into(log):  # the JVM keeps it, and prints lines that no log level silences
                spark = stack.enter_context(spark_session(master, folder, {"spark.log.level": "ERROR", **(conf or {})}))
        except Exception as error:
            error.add_note(f"the last lines of Spark's log:\n{log.read_text()[-2000:]}")
            raise
        stage(spark, 4 * SLOTS, lambda _: {})
        yield spark, str(folder / "runs")


def quiet(runs: str) -> dict[str, Any]:
    """Options of one call of `sweep()`: a run directory below `runs`, and no progress."""
    return {"dir": runs, "name": uuid4().hex, "progress": False}


def idle_agents(pool: "Pool") -> list[AgentState]:
    """The agents of a pool that can start a member at once."""
    coordinator = pool._agents._coordinator
    assert coordinator is not None
    return [agent for agent in coordinator._machine.agents.all() if agent.status is AgentStatus.IDLE]


def stage(spark: "SparkSession", tasks: int, function: Callable[[int], Mapping[str, float]]) -> list[dict[str, Any]]:
    """The results of `function` for 0, 1, ... in the tasks of a plain Spark stage."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"result": [json.dumps(function(number))]})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, "result string").collect()
    return [json.loads(row.result) for row in rows]


def seconds_of(call: Callable[[], object]) -> float:
    """The duration of `call`."""
    started_at = time.perf_counter()
    call()
    return time.perf_counter() - started_at


@contextmanager
def stderr_into(log: Path) -> Iterator[None]:
    """Redirect stderr of this process, and of those that it starts meanwhile, to a file."""
    kept = os.dup(_STDERR)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
