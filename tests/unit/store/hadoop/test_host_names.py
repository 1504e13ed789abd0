"""An unknown host ends a call at once, with its name in the error."""

import socket

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import StoreRefusedError
from sparktrain.store.base import Store
from sparktrain.store.hadoop import hadoop_conf
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.webhdfs import WebHdfsStore

ANSWERS = {"nn1": None, "dns-is-down": socket.EAI_AGAIN, "nowhere": socket.EAI_NONAME, "gone": socket.EAI_NONAME}


@pytest.fixture(autouse=True)
def name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, port: None) -> list[object]:
        if (error := ANSWERS[host]) is not None:
            raise socket.gaierror(error, "name service")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize("places", [[], ["cluster"], ["nn1:8020"], ["nowhere:9870", "nn1:9870"], ["dns-is-down:8020"]])
def test_a_host_that_may_be_known_passes(places: list[str]) -> None:
    hadoop_conf.check(places)


@pytest.mark.parametrize(
    ("store", "host"),
    [
        (HdfsStore(StoreAddress("hdfs://nowhere:8020/runs")), "'nowhere'"),
        (WebHdfsStore(StoreAddress("webhdfs://nowhere:9870,gone:9870/runs")), "'nowhere', 'gone'"),
    ],
    ids=["hdfs", "webhdfs"],
)
def test_an_unknown_host_is_refused(store: Store, host: str) -> None:
    with pytest.raises(StoreRefusedError, match=rf"runs/run.json: the host name {host} is unknown .*; correct the URL"):
        store.exists("run.json")
