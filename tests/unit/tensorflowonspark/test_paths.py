"""Paths as TensorFlowOnSpark resolves them: the table of its own test."""

import pytest

from sparktrain.tensorflowonspark.paths import absolute_path

SYSTEMS = ["file://", "hdfs://", "viewfs://", "hdfs://namenode:8020", "hdfs://namenode:8020/", "s3a://bucket"]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("url", ["hdfs://foo/bar", "viewfs://foo/bar", "file://foo/bar", "s3a://foo/bar"])
def test_urls_stay(system: str, url: str) -> None:
    assert absolute_path(url, system, "/home/ann/job", "ann") == url


@pytest.mark.parametrize(
    ("system", "absolute", "relative"),
    [
        ("file://", "file:///foo/bar", "file:///home/ann/job/foo/bar"),
        ("hdfs://", "hdfs:///foo/bar", "hdfs:///user/ann/foo/bar"),
        ("viewfs://", "viewfs:///foo/bar", "viewfs:///user/ann/foo/bar"),
        ("hdfs://namenode:8020", "hdfs://namenode:8020/foo/bar", "hdfs://namenode:8020/user/ann/foo/bar"),
        ("hdfs://namenode:8020/", "hdfs://namenode:8020/foo/bar", "hdfs://namenode:8020/user/ann/foo/bar"),
        ("file:///", "file:///foo/bar", "file:///home/ann/job/foo/bar"),
    ],
)
def test_paths_are_beneath_the_default_file_system(system: str, absolute: str, relative: str) -> None:
    assert absolute_path("/foo/bar", system, "/home/ann/job", "ann") == absolute
    assert absolute_path("foo/bar", system, "/home/ann/job", "ann") == relative
