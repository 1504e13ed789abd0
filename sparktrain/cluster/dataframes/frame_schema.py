"""The columns of a Spark DataFrame, from its schema alone: no Spark job runs."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import pyarrow as pa

from sparktrain.base.formatting import first_line
from sparktrain.datasets.arrow_columns import ForeignType, columns_of
from sparktrain.datasets.columns import Column
from sparktrain.errors import DataError, SessionError

_CASE_SENSITIVE = "spark.sql.caseSensitive"


def frame_columns(frame: Any, subject: str) -> tuple[Column, ...]:
    """The columns that the rows of `frame` give. Blocks and raises as `arrow_schema`.

    Raises DataError with each column that has no rule, and with names that differ in case alone, beside the
    DataFrame's own schema.
    """
    schema = arrow_schema(frame, subject)
    try:
        return columns_of(schema, subject, more_problems=_alike_but_for_case(frame, schema.names))
    except DataError as error:
        raise DataError(f"{error}\nits schema is {_schema(frame, subject).simpleString()}") from None


def arrow_schema(frame: Any, subject: str) -> pa.Schema:
    """The Arrow schema in which Spark's tasks receive the rows; a type that Arrow lacks is a `ForeignType`.

    Blocks on a Connect server for a moment, or as long as PySpark retries a server that does not answer. Raises
    DataError for a DataFrame that Spark cannot analyze; SessionError where its session does not answer.
    """
    # One by one: PySpark converts a whole schema, and fails at the first type without naming its column.
    return pa.schema([_arrow_field(field) for field in _schema(frame, subject)])


def _arrow_field(field: Any) -> pa.Field:
    """A column of Spark in Arrow; where Arrow lacks its type, the fields of a struct one by one."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    zoned: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )  # since PySpark 4.1
    try:
        return to_arrow_schema(StructType([field]), **zoned).field(0)
    except PySparkException:
        kind = field.dataType
        if isinstance(kind, StructType):
            return pa.field(field.name, pa.struct([_arrow_field(inner) for inner in kind]))
        return pa.field(field.name, ForeignType(kind.simpleString()))


def _alike_but_for_case(frame: Any, names: Sequence[str]) -> list[str]:
    """A problem for each set of names that Spark confuses: by default it ignores their case.

    Blocks on a Connect server for a moment where there are such names.
    """
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(name.lower(), []).append(name)
    several = [group for group in alike.values() if len(group) > 1]
    if not several or frame.sparkSession.conf.get(_CASE_SENSITIVE, "false").lower() == "true":
        return []
    return [
        f"columns {' and '.join(map(repr, group))} differ in case alone, which Spark ignores: rename all but one with "
        f"df.toDF(...), or set {_CASE_SENSITIVE} to true"
        for group in several
    ]


def _schema(frame: Any, subject: str) -> Any:
    """The schema in Spark's types. A Connect server analyzes the DataFrame now, a classic session has done it."""
    from pyspark.errors import AnalysisException

    try:
        return frame.schema
    except AnalysisException as error:
        raise DataError(
            f"{subject} is a DataFrame that Spark cannot analyze: {first_line(error).rstrip(' ;.')}; correct its query"
        ) from error
    except Exception as error:  # Py4J, gRPC and Spark errors have no common root
        raise SessionError(
            f"{subject} is a DataFrame of a session that does not answer ({first_line(error).rstrip(' ;.')}): "
            "read it again in the session that is active"
        ) from error
