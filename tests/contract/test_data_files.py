"""Datasets of files in an object store."""

from uuid import uuid4

import pytest

from sparktrain import data
from sparktrain.datasets.file_plans import plan_files
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.errors import DataError
from sparktrain.store.url import open_store
from tests.unit.datasets.data_files import MAKERS, ROWS, Format, content, numbers, planned, put, replace_file


@pytest.mark.usefixtures("aws")
def test_files_in_s3_are_found_and_read_by_ranges(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = open_store(f"s3://runs/{uuid4().hex}")
    formats: list[Format] = ["parquet", "arrow", "stream", "tfrecord"]
    for format in formats:
        put(store, f"{format}/day=1/part-0", content(format, numbers()))
        put(store, f"{format}/day=2/part-0", content(format, numbers(5, start=ROWS)))
        put(store, f"{format}/_SUCCESS", b"")
        manifest, rows = planned(MAKERS[format](store.where(format)))
        assert manifest.root == store.where()
        assert rows["day"].to_pylist() == [1] * ROWS + [2] * 5
        column = "record" if format == "tfrecord" else "image"
        assert rows[column].to_pylist() == [bytes([each] * 5) for each in range(ROWS + 5)]
    manifest, rows = planned(data.parquet(store.where("parquet/*/part-*"), columns=["id"]))
    assert rows["id"].to_pylist() == list(range(ROWS + 5))


@pytest.mark.usefixtures("aws")
def test_an_object_that_replaces_another_in_the_same_second_is_known_by_its_etag(
    s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = open_store(f"s3://runs/{uuid4().hex}")
    put(store, "rows", content("tfrecord", numbers()))
    manifest = plan_files(data.tfrecord(store.where("rows")), "train")
    fetcher = GroupFetcher(manifest, open_store(manifest.root))
    fetcher.fetch(0, 0)
    version = store.stat("rows").version
    replace_file(store, "rows", content("tfrecord", numbers(start=1)))

    assert manifest.files[0].version == version != store.stat("rows").version
    with pytest.raises(DataError, match=r"rows was replaced after the dataset was planned: it has"):
        fetcher.fetch(0, 0)
