"""A driver with two trials that train until a test ends it.

python -m tests.faults.driver HOW FOLDER, with HOW: sweep, pool, stop (sc.stop() once FOLDER/stop exists), connect.
"""

import sys
import threading
from pathlib import Path

import sparktrain as st
from tests.support.functions import breed
from tests.support.local_spark import ONE_EXECUTOR, spark_session
from tests.support.processes import wait_until


def main(how: str, folder: Path) -> None:
    with spark_session(ONE_EXECUTOR, folder, connect=how == "connect") as spark:
        if how == "stop":
            threading.Thread(target=stop_on_request, args=(spark, folder / "stop"), daemon=True).start()
        space = {"x": [0, 1], "pids": [str(folder / "pids")]}
        options = {"metric": "y", "mode": "max", "dir": str(folder / "runs"), "name": "run", "progress": False}
        try:
            if how == "pool":
                with st.pool(spark, agents=2, preload=[]) as pool:
                    pool.sweep(breed, space, **options)
            else:
                st.sweep(breed, space, spark=spark, **options)
        except BaseException as error:
            print(f"ended by {type(error).__name__}: {error}", flush=True)
            raise


def stop_on_request(spark: object, request: Path) -> None:
    wait_until(request.exists, 120.0, "the request to stop")
    spark.stop()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
