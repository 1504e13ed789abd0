"""Finds the files of a DataFrame that only reads Parquet: members read them where they are, and nothing is copied.

Reading in place must give the rows of the DataFrame, so the rule lists what is known to be plain, and Spark writes
everything else. Table formats inherit from Spark's classes and read other rows than their files hold (deletion vectors
of Delta, merge-on-read of Hudi), which is why classes count by their exact names.
"""

from typing import Any, NamedTuple

SCHEMES = ("file:", "hdfs:")
"""Stores for which members have the same rights as Spark's executors."""
_NOT_PLAIN = "%*?[]{}"
"""Characters of URLs that mean more than themselves."""
_SOURCES = "org.apache.spark.sql.execution.datasources"
_PLAN = f"{_SOURCES}.LogicalRelation"
_RELATION = f"{_SOURCES}.HadoopFsRelation"
_FORMAT = f"{_SOURCES}.parquet.ParquetFileFormat"
_INDEX = f"{_SOURCES}.InMemoryFileIndex"
_ALIAS = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
_OPTIONS = frozenset({"path"})
"""Options of a reader that change neither its rows nor its columns."""
_SETTINGS = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.mergeSchema",
    "spark.sql.parquet.fieldId.read.enabled",
)
"""Settings of a session with which Spark gives other rows than the files hold, or finds columns by other means."""


class ParquetScan(NamedTuple):
    """What a DataFrame reads, where it does nothing else."""

    files: tuple[str, ...]
    """The URLs of its files, sorted."""
    size: int
    """Bytes of all files when Spark listed them."""


def parquet_scan(frame: Any) -> ParquetScan | None:
    """The files that `frame` consists of; None where it computes anything, is cached, or is of Connect.

    Blocks on the session's JVM for a moment, and starts no job. Raises nothing.
    """
    try:
        relation = _plain_relation(frame)
        files = () if relation is None else tuple(sorted(relation.inputFiles()))
        size = 0 if relation is None else int(relation.location().sizeInBytes())
    except Exception:  # Py4J's errors, and what a plan of another kind lacks
        return None
    fitting = all(file.startswith(SCHEMES) and not any(mark in file for mark in _NOT_PLAIN) for file in files)
    # Spark reads a file once for each path that names it: twice for read.parquet(p, p).
    return ParquetScan(files, size) if files and fitting and len({*files}) == len(files) else None


def _plain_relation(frame: Any) -> Any:
    """Spark's relation of the files that `frame` reads without any further step; None where there is more to it."""
    execution = frame._jdf.queryExecution()
    plan = execution.analyzed()
    optimized = execution.optimizedPlan()
    while _class_of(plan) == _ALIAS:
        plan = plan.child()
    # The optimizer replaces what is cached, and extensions of a session filter rows there.
    if _class_of(plan) != _PLAN or _class_of(optimized) != _PLAN or _is_cached(frame):
        return None
    relation = plan.relation()
    plain = (
        _class_of(relation) == _RELATION
        and optimized.relation().equals(relation)
        and _class_of(relation.fileFormat()) == _FORMAT
        and _class_of(relation.location()) == _INDEX
        and relation.partitionSchema().isEmpty()
        and not relation.bucketSpec().isDefined()
        and not plan.catalogTable().isDefined()
        and _options_of(relation) <= _OPTIONS
        and not any(_is_set(frame, setting) for setting in _SETTINGS)
    )
    return relation if plain else None


def _class_of(value: Any) -> str:
    return str(value.getClass().getName())


def _is_cached(frame: Any) -> bool:
    """Whether Spark holds rows of this plan, those of another time perhaps."""
    level = frame._jdf.storageLevel()
    return bool(level.useMemory() or level.useDisk() or level.useOffHeap())


def _options_of(relation: Any) -> set[str]:
    """The names of the options of a reader, in lower case."""
    names = set()
    keys = relation.options().keysIterator()
    while keys.hasNext():
        names.add(str(keys.next()).lower())
    return names


def _is_set(frame: Any, setting: str) -> bool:
    return str(frame.sparkSession.conf.get(setting, "false")).strip().lower() != "false"
