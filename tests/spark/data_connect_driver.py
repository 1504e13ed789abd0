"""A driver that trains on DataFrames of a Spark Connect session, in its own process.

python -m tests.spark.data_connect_driver FOLDER: prints its results as one JSON object.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import sparktrain as st
from tests.support.local_spark import LOCAL_CLUSTER, spark_session


def note(folder: str, ctx: Any) -> dict[str, float]:
    """Each member notes the ids of its rows, and counts the rows that are whole: all columns of one row."""
    batches = list(ctx.dataset("train").iter_batches(batch_size=7, shuffle=True, uneven="repeat"))
    rows = [
        (int(key), float(half), pair.tolist(), text.decode(), bytes(image).decode(), inner)
        for each in batches
        for key, half, pair, text, image, inner in zip(
            each["id"], each["half"], each["pair"], each["text"], each["image"], each["nested.a"].tolist(), strict=True
        )
    ]
    right = sum(
        (half, pair, text, image, inner) == (key / 2, [key, 1], f"row {key}", f"{key:04d}", key)
        for key, half, pair, text, image, inner in rows
    )
    Path(folder, f"rows-{ctx.rank}").write_text(" ".join(str(key) for key, *_ in rows))
    return {"rows": ctx.dataset("train").num_rows, "noted": len(rows), "right": right, "steps": len(batches)}


def rows_of(spark: SparkSession) -> Any:
    """280 rows of columns of several kinds, in five partitions."""
    return spark.range(0, 280, 1, 5).select(
        "id",
        (f.col("id") / 2).alias("half"),
        f.array(f.col("id").cast("float"), f.lit(1.0).cast("float")).alias("pair"),
        f.concat(f.lit("row "), f.col("id")).alias("text"),
        f.encode(f.lpad(f.col("id").cast("string"), 4, "0"), "UTF-8").alias("image"),
        f.struct(f.col("id").alias("a")).alias("nested"),
    )


def refusal(params: dict[str, Any], frame: Any, name: str, options: dict[str, Any]) -> str:
    """The error of a run that is refused."""
    try:
        st.run(note, params, data={"train": frame}, name=name, **options)
    except st.SparktrainError as error:
        return f"{type(error).__name__}: {error}"
    return "trained"


def main(folder: Path) -> None:
    with spark_session(LOCAL_CLUSTER, folder, connect=True) as spark:
        options: dict[str, Any] = {
            "dir": str(folder / "runs"), "workers": 2, "backend": "none", "preload": [], "progress": False
        }  # fmt: skip
        params = {"folder": str(folder)}

        frame = rows_of(spark)
        trained = st.run(note, params, data={"train": frame}, name="trained", **options)
        classic = SparkSession._instantiatedSession  # of the server, which is in this process
        assert classic is not None
        other = spark.newSession()
        theirs = other.range(9)
        released = spark.newSession()
        gone = released.range(9).select("id")
        released._client.release_session()
        wrong = {
            "types": spark.sql("select id, current_date() as day, cast(id as decimal(9, 2)) as p from range(5)"),
            "query": frame.select("half", "whole"),
            "nulls": spark.sql("select if(id = 3, null, id) as x from range(0, 4, 1, 1)"),
            "classic": classic.range(9),
            "other": theirs,
            "released": gone,
        }
        seen: dict[str, Any] = {
            "session": type(spark).__module__,
            "metrics": trained.metrics,
            "ids": sorted(int(each) for path in folder.glob("rows-*") for each in path.read_text().split()),
            "files": len(list((folder / "runs/trained/data").rglob("*.arrow"))),
            "refused": {name: refusal(params, each, name, options) for name, each in wrong.items()},
        }
        for session in (other, released):
            session.client.close()  # at its exit, PySpark would look for their server for ten minutes
    seen["refused"]["stopped"] = refusal(params, frame, "stopped", options)
    seen["runs"] = sorted(path.name for path in (folder / "runs").iterdir())
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
