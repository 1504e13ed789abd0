"""`dir=` that names an object store."""

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import SpecError
from sparktrain.store.objects import object_urls
from sparktrain.store.url import open_store


@pytest.mark.parametrize(
    ("dir", "where"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/exp/mnist/", "s3://bucket/exp/mnist"),
        ("S3A://bucket/my%20exp?#", "s3://bucket/my%20exp?#"),
        ("gs://bucket/exp", "gs://bucket/exp"),
        ("az://container/exp", "abfs://container/exp"),
        ("abfss://container@account.dfs.core.windows.net/exp", "abfs://container/exp"),
        ("memory://test/exp", "memory://test/exp"),
    ],
)
def test_object_stores(dir: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_urls, "find_spec", lambda name: name)
    store = open_store(dir)
    assert store.where() == where
    assert store.where("a/b") == f"{where}/a/b"


def test_an_address_carries_settings_and_the_timeout() -> None:
    address = StoreAddress("memory://test/exp", timeout_s=7)
    assert open_store(address).address == address


@pytest.mark.parametrize("dir", ["s3:/bucket/a", "s3://", "s3:///a", "s3://bucket/a//b", "s3://bucket/../b"])
def test_malformed_urls_are_refused(dir: str) -> None:
    with pytest.raises(SpecError, match="must have the form s3://bucket/folder"):
        open_store(dir)


def test_a_secret_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(SpecError, match=r"dir \(s3://\*\*\*@bucket/a\) has something before an @") as caught:
        open_store("s3://AKIA:canary@bucket/a")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "package"), [("s3", r"sparktrain\[s3\]"), ("gs", "gcsfs"), ("abfs", "adlfs"), ("memory", "fsspec")]
)
def test_a_missing_package_is_named(scheme: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_urls, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=rf"dir \({scheme}://bucket/a\) needs .*: pip install '{package}'"):
        open_store(f"{scheme}://bucket/a")
