"""DataFrames and TFRecord files, by the names of TensorFlowOnSpark's `dfutil`. Needs no TensorFlow and no JAR file."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from sparktrain.cluster.dataframes.example_columns import columns_of_examples
from sparktrain.cluster.dataframes.record_files import load_records, save_records
from sparktrain.datasets.example_encoder import encoded_examples
from sparktrain.datasets.tf_examples import features_of
from sparktrain.errors import DataError
from sparktrain.tensorflowonspark.paths import path_for

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

loadedDF: "WeakKeyDictionary[DataFrame, str]" = WeakKeyDictionary()
"""The path of each DataFrame that `loadTFRecords` has made in this process."""

_ARROW = {
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "binary": pa.binary(),
    "string": pa.string(),
}
_RECORD = "a record"


def isLoadedDF(df: "DataFrame") -> bool:
    """Whether `loadTFRecords` has made this DataFrame; one that is derived from it does not count."""
    return df in loadedDF


def saveAsTFRecords(df: "DataFrame", output_dir: str) -> None:
    """Write a DataFrame as TFRecord files with `tf.train.Example` into the new folder `output_dir`, in any store.

    Numbers, booleans, strings, bytes and arrays of numbers become features; `double` becomes `float`. Runs a Spark job,
    and blocks until it has ended. Raises DataError for other types before the job starts, for nulls, and for a folder
    that has files.
    """
    save_records(df, path_for(df.sparkSession, output_dir))


def loadTFRecords(
    sc: "SparkContext | SparkSession",
    input_dir: str,
    binary_features: Sequence[str] = (),
    schema: "StructType | None" = None,
) -> "DataFrame":
    """A DataFrame of the records in a folder, or of files that wildcards name; `sc` may also be a session.

    Without `schema`, the columns come from a sample of the records of all files: `bigint`, `double`, `string`, and
    arrays of them where a record has several values. Features in `binary_features` are `binary`. Starts no job; blocks
    on the store. Raises DataError for a path without records, and for records that do not fit together.
    """
    session = _session(sc)
    types = {field.name: field.dataType.simpleString() for field in schema} if schema is not None else None
    frame: DataFrame = load_records(session, path_for(session, input_dir), tuple(binary_features), types)
    loadedDF[frame] = input_dir
    return frame


def toTFExample(dtypes: Sequence[tuple[str, str]]) -> Callable[[Iterable[Any]], list[tuple[bytearray, None]]]:
    """A function for `rdd.mapPartitions`, which makes `(tf.train.Example as bytes, None)` of each row.

    `dtypes` are those of the DataFrame (`df.dtypes`). Raises DataError for types without a feature; the function raises
    it for nulls.
    """
    schema = pa.schema([(name, _arrow_type(name, dtype)) for name, dtype in dtypes])

    def encode(rows: Iterable[Any]) -> list[tuple[bytearray, None]]:
        row_tuples = [tuple(row[name] for name in schema.names) for row in rows]
        columns = zip(*row_tuples, strict=True) if row_tuples else [[] for _ in schema]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        records = encoded_examples(pa.RecordBatch.from_arrays(arrays, schema=schema), "a partition")
        return [(bytearray(record), None) for record in records]

    return encode


def fromTFExample(iter: Iterable[Any], binary_features: Sequence[str] = ()) -> list[Any]:
    """The rows of a partition of `(tf.train.Example as bytes, ...)`, for `rdd.mapPartitions`, as `pyspark.sql.Row`.

    A feature with several values is a list, one without is None. Raises DataError for bytes that are no record.
    """
    from pyspark.sql import Row

    rows = []
    for record in iter:
        features = features_of(bytes(record[0]))
        named = {name: feature for name, feature in features.items() if len(feature[1])}
        binary = [name for name in binary_features if name in named]
        columns = columns_of_examples({_RECORD: [named]}, binary, _RECORD) if named else ()
        values = {column.name: column.value(named) for column in columns}
        rows.append(Row(**{name: values.get(name) for name in sorted(features)}))
    return rows


def infer_schema(example: Any, binary_features: Sequence[str] = ()) -> "StructType":
    """The schema of a DataFrame for a `tf.train.Example`: its features, sorted by name. Raises DataError."""
    from pyspark.sql.types import StructType

    columns = columns_of_examples({_RECORD: [features_of(example.SerializeToString())]}, binary_features, _RECORD)
    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, column.spark_type, True)
    return schema


def _arrow_type(name: str, dtype: str) -> pa.DataType:
    inner = dtype.removeprefix("array<").removesuffix(">")
    listed = inner != dtype
    if inner not in _ARROW or (listed and inner in ("binary", "string")):
        raise DataError(
            f"Unsupported dtype: {dtype} of column {name!r}: features are numbers, booleans, strings, bytes and arrays "
            "of numbers; convert it, or leave it out"
        )
    return pa.list_(_ARROW[inner]) if listed else _ARROW[inner]


def _session(sc: Any) -> Any:
    """The session of a SparkContext; a session is its own."""
    from pyspark.sql import SparkSession

    if hasattr(sc, "createDataFrame"):
        return sc
    active = SparkSession.getActiveSession()
    return active if active is not None and active.sparkContext is sc else SparkSession(sc)
