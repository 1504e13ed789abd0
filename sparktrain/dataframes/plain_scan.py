"""Finds the files of a DataFrame that only reads Parquet: members read them where they are, and nothing is copied."""

from typing import Any

SCHEMES = ("file:", "hdfs:")
"""Stores for which members have the same rights as Spark's executors."""
_NOT_PLAIN = "%*?[]{}"
"""Characters of URLs that mean more than themselves."""


def parquet_files(frame: Any) -> tuple[str, ...]:
    """The URLs of the files that `frame` consists of; none where it computes anything, is cached, or is of Connect.

    Blocks on the session's JVM for a moment. Raises nothing.
    """
    try:
        plan = frame._jdf.queryExecution().analyzed()
        while plan.nodeName() == "SubqueryAlias":
            plan = plan.child()
        relation = plan.relation()
        if relation.fileFormat().toString() != "Parquet" or not relation.partitionSchema().isEmpty():
            return ()
        files = tuple(sorted(frame.inputFiles()))
    except Exception:  # Py4J's errors, and what a plan of another kind lacks
        return ()
    fitting = all(each.startswith(SCHEMES) and not any(mark in each for mark in _NOT_PLAIN) for each in files)
    return files if fitting else ()
