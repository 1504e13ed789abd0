"""A driver that streams DataFrames of a Spark Connect session, in its own process.

python -m tests.spark.stream_connect_driver FOLDER: prints its results as one JSON object.
"""

import json
import sys
from pathlib import Path
from typing import Any

import sparktrain as st
from tests.support.local_spark import LOCAL_CLUSTER, spark_session


def rows(ctx: Any) -> dict[str, float]:
    """All rows of an epoch."""
    ids = [int(each) for batch in ctx.stream("train").iter_batches(batch_size=100) for each in batch["id"]]
    return {"rows": len(ids), "different": len(set(ids))}


def some_rows(ctx: Any) -> dict[str, float]:
    """The first rows of a stream that has no end."""
    data = ctx.stream("train")
    found = data.next_batch(1500)
    data.terminate()
    return {"rows": len(found), "different": len(set(found))}


def main(folder: Path) -> None:
    with spark_session(LOCAL_CLUSTER, folder, connect=True) as spark:
        options: dict[str, Any] = {"dir": str(folder / "runs"), "workers": 1, "backend": "none", "preload": []}
        finite = st.data.stream(spark.range(0, 20_000, 1, 3))
        seen = {"finite": st.run(rows, data={"train": finite}, name="finite", **options).metrics}
        spark.range(0, 2000, 1, 4).write.parquet(str(folder / "events"))
        events = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
        endless = st.data.stream(events, checkpoint=str(folder / "kept"))
        seen["endless"] = st.run(some_rows, data={"train": endless}, name="endless", **options).metrics
        seen["queries"] = {"active": len(spark.streams.active)}
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
