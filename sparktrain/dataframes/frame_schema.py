"""The columns of a Spark DataFrame, from its schema alone: no Spark job runs."""

from inspect import signature
from typing import Any

import pyarrow as pa

from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.columns import Column
from sparktrain.errors import DataError, SessionError


def frame_columns(frame: Any, subject: str) -> tuple[Column, ...]:
    """The columns that the rows of `frame` give. Blocks and raises as `arrow_schema`.

    Raises DataError with each column that has no rule, beside the DataFrame's own schema.
    """
    schema = arrow_schema(frame, subject)
    try:
        return columns_of(schema, subject)
    except DataError as error:
        raise DataError(f"{error}\nits schema is {_schema(frame, subject).simpleString()}") from None


def arrow_schema(frame: Any, subject: str) -> pa.Schema:
    """The Arrow schema in which Spark's tasks receive the rows.

    Blocks on a Connect server for a moment, or as long as PySpark retries a server that does not answer. Raises
    DataError for types without a counterpart in Arrow, and for a DataFrame that Spark cannot analyze; SessionError
    where its session does not answer.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = _schema(frame, subject)
    zoned: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )  # since PySpark 4.1
    try:
        return to_arrow_schema(schema, **zoned)
    except PySparkException as error:
        raise DataError(
            f"{subject} has a column type that no tensor has: {_first_line(error)}; select other columns\n"
            f"its schema is {schema.simpleString()}"
        ) from error


def _schema(frame: Any, subject: str) -> Any:
    """The schema in Spark's types. A Connect server analyzes the DataFrame now, a classic session has done it."""
    from pyspark.errors import AnalysisException

    try:
        return frame.schema
    except AnalysisException as error:
        raise DataError(
            f"{subject} is a DataFrame that Spark cannot analyze: {_first_line(error)}; correct its query"
        ) from error
    except Exception as error:  # Py4J, gRPC and Spark errors have no common root
        raise SessionError(
            f"{subject} is a DataFrame of a session that does not answer ({_first_line(error)}): read it again in the "
            "session that is active"
        ) from error


def _first_line(error: Exception) -> str:
    """Connect servers send plans and traces after it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(" ;.")
