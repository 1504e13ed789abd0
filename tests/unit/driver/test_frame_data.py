"""DataFrames that cannot be used: of other sessions, of sessions that are gone, or with a query that is wrong."""

import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import types as t

from sparktrain.cluster.dataframes import frame_writer
from sparktrain.cluster.dataframes.frame_schema import frame_columns
from sparktrain.cluster.dataframes.frame_writer import WriteTask, write_frame
from sparktrain.config.data_sources import FrameSource, StreamSource
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import check_sessions, plan_data
from sparktrain.errors import DataError, RunDirectoryError, SessionError, StoreError, StoreRefusedError

TRACE = "\n'Project [a, 'b]\n\nJVM stacktrace:\n\tat org.apache.spark"


class Context:
    """A SparkContext."""

    def __init__(self, name: str, stopped: bool = False) -> None:
        self.applicationId = name
        self._jsc = None if stopped else self

    def sc(self) -> "Context":
        return self

    def isStopped(self) -> bool:  # noqa: N802 - as Java has it
        return False


class Classic:
    """A classic session."""

    def __init__(self, context: Context) -> None:
        self._sc = context


class Connect:
    """A Connect session."""

    def __init__(self, session_id: str, stopped: bool = False) -> None:
        self.session_id = session_id
        self.is_stopped = stopped


class Frame:
    """A DataFrame; `schema` is what Spark answers."""

    def __init__(self, session: Any, schema: Any = None) -> None:
        self.sparkSession = session
        self._schema = schema

    @property
    def schema(self) -> Any:
        if isinstance(self._schema, Exception):
            raise self._schema
        return self._schema


Frame.__module__ = "pyspark.sql.classic.dataframe"
Frame.__name__ = "DataFrame"
HERE, THERE = Context("app-1"), Context("app-2")
MINE, THEIRS = Connect("mine"), Connect("theirs")


def plan_of(source: Any) -> DataPlan:
    return DataPlan({"train": source})


@pytest.mark.parametrize(
    ("session", "holder", "words"),
    [
        (Classic(THERE), HERE, "of the application app-2, and the application app-1 trains"),
        (Classic(HERE), MINE, "of the application app-1, and the Connect session mine trains"),
        (MINE, HERE, "of the Connect session mine, and the application app-1 trains"),
        (THEIRS, MINE, "of the Connect session theirs, and the Connect session mine trains"),
    ],
)
@pytest.mark.parametrize("kind", [FrameSource, StreamSource])
def test_a_dataframe_of_another_session_is_refused_with_both(kind: Any, session: Any, holder: Any, words: str) -> None:
    text = f"data['train'] is a DataFrame {words}: pass its own session as spark=, or write it to files and pass"
    with pytest.raises(SessionError, match=re.escape(text)):
        check_sessions(plan_of(kind(Frame(session))), holder)


@pytest.mark.parametrize(("session", "holder"), [(Classic(HERE), HERE), (MINE, MINE)])
def test_a_dataframe_of_another_session_of_the_same_application_trains(session: Any, holder: Any) -> None:
    check_sessions(plan_of(FrameSource(Frame(session))), holder)


@pytest.mark.parametrize("session", [Classic(Context("app-1", stopped=True)), Connect("mine", stopped=True)])
@pytest.mark.parametrize("kind", [FrameSource, StreamSource])
def test_a_dataframe_of_a_stopped_session_is_refused(kind: Any, session: Any) -> None:
    with pytest.raises(SessionError, match=r"data\['train'\] is a DataFrame of a session that is stopped: read it"):
        plan_data({"train": kind(Frame(session))}, 60.0)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            AnalysisException("[UNRESOLVED_COLUMN] no column `b`;" + TRACE),
            DataError,
            "data['train'] is a DataFrame that Spark cannot analyze: [UNRESOLVED_COLUMN] no column `b`; correct",
        ),
        (
            PySparkException("[INVALID_HANDLE.SESSION_CLOSED] closed" + TRACE),
            SessionError,
            "data['train'] is a DataFrame of a session that does not answer ([INVALID_HANDLE.SESSION_CLOSED] closed)",
        ),
        (ConnectionError(), SessionError, "of a session that does not answer (ConnectionError): read it again"),
    ],
)
def test_a_schema_that_spark_does_not_give_is_explained_in_a_line(answer: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)) as caught:
        frame_columns(Frame(MINE, answer), "data['train']")
    assert "stacktrace" not in str(caught.value)


def fields(**types: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in types.items()])


def test_types_that_arrow_lacks_are_named_beside_all_other_problems() -> None:
    """In the order of the columns, also within structs, and whatever type they are part of."""
    years = t.YearMonthIntervalType(0, 0)
    schema = fields(
        ok=t.LongType(),
        age=t.CalendarIntervalType(),
        day=t.DateType(),
        s=fields(ok=t.IntegerType(), years=years, cost=t.DecimalType(10, 2)),
        many=t.ArrayType(years),
        m=t.MapType(t.StringType(), years),
        last=t.TimestampType(),
    )
    with pytest.raises(DataError) as caught:
        frame_columns(Frame(MINE, schema), "data['train']")

    lines = str(caught.value).splitlines()
    assert lines[0] == "data['train'] has columns that cannot become tensors:"
    assert re.findall(r"column '(\S+)' is an? ([^:]+): ", str(caught.value)) == [
        ("age", "interval"),
        ("day", "date32[day]"),
        ("s.years", "interval year"),
        ("s.cost", "decimal128(10, 2)"),
        ("many", "array<interval year>"),
        ("m", "map<string,interval year>"),
        ("last", "timestamp[us, tz=UTC]"),
    ]
    assert lines[-1] == f"its schema is {schema.simpleString()}"


class Settings:
    """The settings of a session."""

    def __init__(self, **settings: str) -> None:
        self.conf = self
        self._settings = settings

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name.rpartition(".")[2], default)


def test_columns_that_differ_in_case_alone_are_named() -> None:
    numbers = fields(Age=t.IntegerType(), age=t.IntegerType(), x=t.DateType(), AGE=t.IntegerType(), Y=t.LongType())
    words = (
        r"(?s)^data\['train'\] has columns that cannot .*column 'x' is a date32.*columns 'Age' and 'age' and 'AGE' "
        r"differ in case alone, which Spark ignores: rename all but one"
    )
    with pytest.raises(DataError, match=words):
        frame_columns(Frame(Settings(), numbers), "data['train']")
    pair = fields(Age=t.IntegerType(), age=t.IntegerType())
    assert [each.name for each in frame_columns(Frame(Settings(caseSensitive="true"), pair), "d")] == ["Age", "age"]
    nested = fields(s=fields(Age=t.IntegerType(), age=t.IntegerType()))
    assert [each.name for each in frame_columns(Frame(None, nested), "d")] == ["s.Age", "s.age"]


# ---- what tasks raise


TASK = WriteTask(
    StoreAddress("/shared/runs"), "run/data", columns_of(pa.schema({"x": pa.int64()}), ""), "data['train']"
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(13, "Permission denied"), RunDirectoryError),
        (NotADirectoryError(20, "Not a directory"), RunDirectoryError),
        (StoreRefusedError("quota\nof /shared"), RunDirectoryError),
        (StoreError("no NameNode answers"), StoreError),
    ],
)
def test_an_executor_that_cannot_write_is_named_with_place_and_next_step(
    monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[Exception]
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    class Job:
        """A job with one task, which fails, and Spark's error of it: the text of the task's exception."""

        def collect(self) -> Any:
            try:
                list(TASK(iter([])))
            except Exception as raised:
                text = f"Job aborted\n  sparktrain.errors.{type(raised).__name__}: {raised}\n\tat org.apache.spark"
                raise PySparkException(f"  sparktrain.errors.StoreError: its cause\n{text}") from raised

    monkeypatch.setattr(frame_writer, "write_part", fails)
    monkeypatch.setattr(frame_writer, "map_in_arrow", lambda *_: Job())
    with pytest.raises(kind) as caught:
        write_frame(None, TASK)
    reason = " ".join(str(error).split())
    assert re.fullmatch(
        r"data\['train'\]: an executor on \S+ cannot write run/data in /shared/runs "
        rf"\({re.escape(reason)}\): dir= must be storage that all hosts reach and may write, such as hdfs:/// or .*",
        str(caught.value),
    )
