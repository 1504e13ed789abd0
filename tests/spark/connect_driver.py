"""A driver with a Spark Connect session, in its own process: a process has sessions of one kind.

python -m tests.spark.connect_driver FOLDER: prints its results as one JSON object.
"""

import json
import sys
from pathlib import Path

import sparktrain as st
from tests.support.functions import square
from tests.support.local_spark import ONE_EXECUTOR, spark_session


def train(x: int) -> float:
    """A training function that imports a module sent by `addArtifacts`."""
    import brought

    return brought.double(x)


def main(folder: Path) -> None:
    module = folder / "brought.py"
    module.write_text("def double(x):\n    return 2 * x\n")
    with spark_session(ONE_EXECUTOR, folder, connect=True) as spark:
        spark.addArtifacts(str(module), pyfile=True)
        options = {"dir": str(folder / "runs"), "progress": False}
        swept = st.sweep(square, {"x": [1, 2, 3]}, metric="y", mode="max", name="sweep", **options)
        with st.pool(spark, agents=2, preload=[]) as pool:
            pooled = [
                pool.sweep(train, {"x": [x]}, metric="result", mode="max", name=f"pool-{x}", **options) for x in (4, 5)
            ]
        seen = {
            "session": type(spark).__module__,
            "sweep": [trial.metrics["y"] for trial in swept.trials],
            "pool": [result.trials[0].metrics or str(result.trials[0].error) for result in pooled],
            "afterwards": spark.range(10).count(),
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
