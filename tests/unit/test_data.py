"""What `sparktrain.data` makes of arguments, and which it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sparktrain as st
from sparktrain.config.data_sources import sources_of
from sparktrain.data import FileSource, TableSource
from sparktrain.errors import SpecError


def test_paths_may_be_a_list() -> None:
    expected = FileSource(format="parquet", paths=("a", "b"), columns=("x",), pad={"x": 3}, on_error="skip")
    assert st.data.parquet("a", Path("b"), columns=["x"], pad={"x": 3}, on_error="skip") == expected
    assert st.data.parquet(["a", "b"], columns=("x",), pad={"x": 3}, on_error="skip") == expected
    assert st.data.arrow("a").format == "arrow"


def test_features_are_spelled_as_manifests_have_them() -> None:
    source = st.data.tfrecord(
        "a", features={"n": "int64", "x": ("float32", 784), "ids": ("int64", None), "image": "bytes"}
    )
    assert source.features == {"n": "int64", "x": "float32[784]", "ids": "int64[]", "image": "bytes"}
    assert st.data.tfrecord("a", compression="gzip").compression == "gzip"


@pytest.mark.parametrize("table", [pd.DataFrame({"x": [1]}), pa.table({"x": [1]}), pa.record_batch({"x": [1]})])
def test_tables_become_arrow_tables(table: Any) -> None:
    source = st.data.table(table, pad={"x": 2})
    assert isinstance(source, TableSource)
    assert source.table.to_pydict() == {"x": [1]}
    assert source.pad == {"x": 2}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: st.data.parquet(), r"paths of parquet is \(\) \(tuple\), a path or a list"),
        (lambda: st.data.parquet(["a", 3]), "paths of parquet is"),
        (lambda: st.data.parquet(" "), "paths of parquet is .*, and an empty path names no file"),
        (lambda: st.data.parquet("a", columns="x"), r"columns is 'x' \(str\), a list of names is expected"),
        (lambda: st.data.parquet("a", columns=["x", 1]), r"columns\[1\] is 1"),
        (lambda: st.data.parquet("a", columns=["x", "x"]), "columns names 'x' twice"),
        (lambda: st.data.parquet("a", pad={"x": 0}), "pad is"),
        (lambda: st.data.parquet("a", on_error="skipp"), "did you mean 'skip'"),
        (lambda: st.data.tfrecord("a", compression="gzipp"), "did you mean 'gzip'"),
        (lambda: st.data.tfrecord("a", features={"x": "float"}), r"features\['x'\] is 'float'.*did you mean 'float32'"),
        (lambda: st.data.tfrecord("a", features={"x": ("bytes", 3)}), "lists of bytes have no tensor"),
        (lambda: st.data.tfrecord("a", features={"x": ("int64", 0)}), r"has the length 0: write a number from 1"),
        (lambda: st.data.tfrecord("a", features=["x"]), "types by name are expected"),
        (lambda: st.data.tfrecord("a", features={}), "types by name are expected"),
        (lambda: st.data.dataframe(pd.DataFrame()), r"pass a Spark DataFrame, or use table\(...\)"),
        (lambda: st.data.table("file.parquet"), r"pass a pandas DataFrame or a pyarrow.Table"),
        (lambda: st.data.stream([1, 2]), "pass a Spark DataFrame or an RDD"),
        (lambda: st.data.stream(Frame(), checkpoint="x"), r"checkpoint \('x'\) is for a DataFrame of Structured"),
        (lambda: st.data.stream(Frame(), checkpoint=" "), r"checkpoint \(' '\) must be the path or URL of a folder"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        call()


class Frame:
    """Looks like a DataFrame of PySpark, without a session."""

    isStreaming = False  # noqa: N815 # the name of PySpark


Frame.__module__, Frame.__name__ = "pyspark.sql.dataframe", "DataFrame"


def test_a_frame_has_options() -> None:
    frame = Frame()
    source = st.data.dataframe(frame, key="clicks", partitions=4)
    assert (source.frame, source.key, source.partitions) == (frame, "clicks", 4)
    assert st.data.stream(frame).frame is frame
    with pytest.raises(SpecError, match=r"partitions \(0\) must be a number from 1"):
        st.data.dataframe(frame, partitions=0)
    with pytest.raises(SpecError, match=r"key is '' .*a name for the content"):
        st.data.dataframe(frame, key="")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "data\\['train'\\] is .*, and an empty path names no file"),
        (["a.parquet", " "], "data\\['train'\\] is .*, and an empty path names no file"),
        (
            "folder/*.csv",
            "has 'folder/\\*.csv', and sparktrain reads Parquet, Arrow and TFRecord files: read it with Spark",
        ),
        (pd.DataFrame({"x": [1, "a"]}), "Arrow cannot hold .*column x.*: give each column a name of its own"),
        (pd.DataFrame({"x": np.array([1, 2], ">i4")}), "Arrow cannot hold .*Byte-swapped arrays not supported"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Arrow cannot hold .*Duplicate column names found"),
        (pd.DataFrame({"x": pd.arrays.SparseArray([0, 1])}), "Arrow cannot hold .*Sparse pandas data"),
    ],
)
def test_a_value_that_has_no_columns_is_refused_with_its_name(value: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        sources_of({"train": value})


@pytest.mark.parametrize("module", ["pandas", "pandas.core.frame"])
def test_a_table_of_pandas_is_data_whichever_module_it_names(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd.DataFrame, "__module__", module)  # pandas 3 names the first
    source = sources_of({"train": pd.DataFrame({"a": [1.0, 2.0]})})["train"]
    assert isinstance(source, TableSource)
    assert source.table.to_pydict() == {"a": [1.0, 2.0]}
