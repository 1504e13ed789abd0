"""Drivers of streams in processes of their own: a test kills one, and Spark speculates in the other.

python -m tests.spark.stream_drivers URL FOLDER: feeds on the standalone cluster at URL, prints a JSON object.
"""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.base.clock import pause
from sparktrain.cluster.dataframes.feeder import FEED_SCHEMA, feed_task
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.feed_messages import FeedTicket
from tests.support.feeds import FedMember, closing_all
from tests.support.local_spark import spark_session
from tests.support.mortal import NAME
from tests.support.processes import wait_until

ROWS = 100_000


def fed(folder: Path) -> Any:
    """A run of one member that reads a stream; the first generation waits in it while FOLDER/hold exists."""

    def train(ctx: Any) -> dict[str, float]:
        batches = ctx.stream("train").iter_batches(batch_size=100)
        rows = [int(each) for each in next(batches)["id"]]
        Path(folder, f"reads-{ctx.generation}").touch()
        while Path(folder, "hold").exists():
            pause(0.02)
        rows += [int(each) for batch in batches for each in batch["id"]]
        return {"rows": len(rows), "different": len(set(rows)), "generation": ctx.generation}

    spark = SparkSession.getActiveSession()
    assert spark is not None
    stream = st.data.stream(spark.range(0, ROWS, 1, 2))
    options: dict[str, Any] = {"workers": 1, "backend": "none", "preload": [], "progress": False}
    return st.run(train, data={"train": stream}, dir=str(folder / "runs"), name=NAME, **options).metrics


def slow_at_first(batches: Iterator[pa.RecordBatch], ticket: FeedTicket, folder: str) -> Iterator[pa.RecordBatch]:
    """As `feed_task`; the first attempt of partition 1 waits in the middle of it for the start of the second."""
    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.attemptNumber()
    Path(folder, f"attempt-{partition}-{attempt}").touch()

    def slow() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if (number, partition, attempt) == (1, 1, 0):
                wait_until(Path(folder, "attempt-1-1").exists, 60, "the speculative attempt")
            yield batch

    yield from feed_task(slow(), ticket)


def main(url: str, folder: Path) -> None:
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    with spark_session(url, folder, conf) as spark, closing_all() as started:
        member = FedMember(issue("spark"))
        started.append(member)
        member.ask("start", "train", 1)
        member.send("take all", "train")
        task = partial(slow_at_first, ticket=member.ticket(), folder=str(folder))
        rows = spark.range(0, ROWS, 1, 2).mapInArrow(task, FEED_SCHEMA).collect()
        found = {
            "fed": sorted([row.partition, row.rows] for row in rows),
            "attempts": sorted(each.name for each in folder.glob("attempt-*")),
            "ids": member.ask("end", "train", 1, ""),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
