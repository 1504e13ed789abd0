"""A gang that loses an agent on an executor that Spark excludes then: prints how the call ends.

It is a program of its own, because the JVM of a process passes settings of its first session on to all later ones.
"""

import sys
from pathlib import Path

import msgspec

import sparktrain as st
from tests.support import drill
from tests.support.drill import Strike
from tests.support.local_spark import LOCAL_CLUSTER, spark_session

if __name__ == "__main__":
    scratch = Path(sys.argv[1])
    (scratch / "notes").mkdir()
    params = {"folder": str(scratch / "notes"), "strikes": [msgspec.to_builtins(Strike(1, 17, 1, "agent"))]}
    with spark_session(LOCAL_CLUSTER, scratch, {"spark.excludeOnFailure.enabled": "true"}) as spark:
        try:
            st.run(
                drill.train, params, workers=2, backend="none", dir=str(scratch / "runs"), spark=spark, max_retries=4,
                preload=["numpy"], progress=False, start_timeout=150,
            )  # fmt: skip
        except st.JoinTimeoutError as error:
            print(error)
