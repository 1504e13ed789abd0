"""A program for spark-submit that submits, attaches, and has its coordinator in the cluster.

spark-submit submitting_program.py FOLDER: leaves what it saw in FOLDER/seen.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparktrain as st


def main(folder: Path) -> None:
    """Make each call once."""

    def train(x: int) -> dict[str, float]:
        return {"y": 2.0 * x}

    common: dict[str, Any] = {
        "metric": "y",
        "mode": "max",
        "backend": "none",
        "preload": [],
        "dir": str(folder / "runs"),
    }
    spark = SparkSession.builder.getOrCreate()
    handle = st.submit(train, {"x": [1, 2]}, name="submitted", spark=spark, **common)
    results = {
        "submitted": handle.result(90.0),
        "attached": st.attach(handle.directory).result(30.0),
        "swept": st.sweep(train, {"x": [1, 2]}, name="swept", coordinator="cluster", spark=spark, **common),
    }
    seen: dict[str, Any] = {
        name: [trial.metrics for trial in result.trials]
        for name, result in results.items()
        if isinstance(result, st.SweepResult)
    }
    for name, place in {"here": {"spark": st.local()}, "nowhere": {"coordinator": "driver"}}.items():
        try:
            st.submit(train, {"x": [1]}, name=name, **{"spark": spark} | place, **common)
        except st.SparktrainError as error:
            seen[name] = f"{type(error).__name__}: {error}"
    seen["runs"] = sorted(path.name for path in (folder / "runs").iterdir())
    (folder / "seen.json").write_text(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
