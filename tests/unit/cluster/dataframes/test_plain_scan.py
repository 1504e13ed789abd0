"""Plans of Spark that are plain Parquet, and plans that only look so, as a double of the session's JVM gives them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.cluster.dataframes.plain_scan import ParquetScan, parquet_scan

SOURCES = "org.apache.spark.sql.execution.datasources"
FILES = ["file:///in/b.parquet", "file:///in/a.parquet"]


class JvmObject(SimpleNamespace):
    """An object of the JVM: its class by name, and what its methods return."""

    def __init__(self, name: str, **results: Any) -> None:
        super().__init__(class_name=name, results=results)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method == "getClass":
            return lambda: SimpleNamespace(getName=lambda: self.class_name)
        if method == "equals":
            return lambda other: other is self
        if method not in self.results:
            raise AttributeError(f"{self.class_name} has no method {method}")
        return lambda *_: self.results[method]


def constant(**results: Any) -> SimpleNamespace:
    return SimpleNamespace(**{name: lambda value=value: value for name, value in results.items()})


def keys(*names: str) -> SimpleNamespace:
    """A map of Scala with these keys."""
    waiting = list(names)
    iterator = SimpleNamespace(hasNext=lambda: bool(waiting), next=lambda: waiting.pop())
    return constant(keysIterator=iterator)


def relation(**changes: Any) -> JvmObject:
    index = changes.pop("index", f"{SOURCES}.InMemoryFileIndex")
    file_format = changes.pop("file_format", f"{SOURCES}.parquet.ParquetFileFormat")
    results = {
        "fileFormat": JvmObject(file_format),
        "location": JvmObject(index, sizeInBytes=77),
        "partitionSchema": constant(isEmpty=True),
        "bucketSpec": constant(isDefined=False),
        "options": keys("path"),
        "inputFiles": FILES,
    }
    return JvmObject(changes.pop("name", f"{SOURCES}.HadoopFsRelation"), **(results | changes))


def plan(of: JvmObject, **changes: Any) -> JvmObject:
    name = changes.pop("name", f"{SOURCES}.LogicalRelation")
    return JvmObject(name, **({"relation": of, "catalogTable": constant(isDefined=False)} | changes))


def frame(analyzed: JvmObject, optimized: JvmObject | None = None, **settings: str) -> Any:
    execution = constant(analyzed=analyzed, optimizedPlan=optimized or analyzed)
    level = constant(useMemory=settings.pop("cached", "") != "", useDisk=False, useOffHeap=False)
    conf = SimpleNamespace(get=lambda name, default: settings.get(name.rpartition(".")[2], default))
    return SimpleNamespace(
        _jdf=constant(queryExecution=execution, storageLevel=level), sparkSession=SimpleNamespace(conf=conf)
    )


def test_a_plain_relation_gives_its_files_and_their_size() -> None:
    alias = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
    plain = plan(relation())

    expected = ParquetScan((FILES[1], FILES[0]), 77)
    assert parquet_scan(frame(plain)) == expected
    assert parquet_scan(frame(JvmObject(alias, child=plan(shared := relation())), plan(shared))) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"file_format": "org.apache.spark.sql.delta.DeltaParquetFileFormat"},
        {"file_format": "org.apache.spark.sql.execution.datasources.parquet.HoodieParquetFileFormat"},
        {"file_format": "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat"},
        {"index": "org.apache.spark.sql.delta.files.TahoeLogFileIndex"},
        {"index": "org.apache.hudi.HoodieFileIndex"},
        {"index": f"{SOURCES}.CatalogFileIndex"},
        {"index": "org.apache.spark.sql.execution.streaming.MetadataLogFileIndex"},
        {"name": "com.example.HadoopFsRelation"},
        {"partitionSchema": constant(isEmpty=False)},
        {"bucketSpec": constant(isDefined=True)},
        {"inputFiles": [*FILES, FILES[0]]},
        {"inputFiles": []},
        {"inputFiles": ["s3a://bucket/a.parquet"]},
        {"inputFiles": ["file:///in/a%20b.parquet"]},
        {"inputFiles": ["file:///in/[a].parquet"]},
        *(
            {"options": keys("path", name)}
            for name in ("mergeschema", "ignoreCorruptFiles", "basepath", "pathglobfilter", "of.tomorrow")
        ),
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_formats_indexes_and_options_are_not_plain(changes: dict[str, Any]) -> None:
    assert parquet_scan(frame(plan(relation(**changes)))) is None


@pytest.mark.parametrize("setting", ["ignoreCorruptFiles", "ignoreMissingFiles", "mergeSchema", "enabled"])
def test_settings_of_the_session_count(setting: str) -> None:
    assert parquet_scan(frame(plan(relation()), **{setting: "true"})) is None
    assert parquet_scan(frame(plan(relation()), **{setting: "False"})) is not None


def test_what_the_optimizer_changes_is_not_plain() -> None:
    """Rules of the session may filter rows: those of a policy that hides rows from a user."""
    seen = plan(relation())
    filtered = JvmObject("org.apache.spark.sql.catalyst.plans.logical.Filter", child=seen)

    assert parquet_scan(frame(seen, filtered)) is None
    assert parquet_scan(frame(seen, plan(relation()))) is None


def test_a_cached_plan_a_table_and_a_frame_of_connect_are_not_plain() -> None:
    assert parquet_scan(frame(plan(relation()), cached="yes")) is None
    assert parquet_scan(frame(plan(relation(), catalogTable=constant(isDefined=True)))) is None
    assert parquet_scan(frame(plan(relation(), name="org.apache.spark.sql.catalyst.plans.logical.Project"))) is None
    assert parquet_scan(SimpleNamespace(sparkSession=None)) is None
