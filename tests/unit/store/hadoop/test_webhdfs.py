"""The client of HDFS by HTTP, without one."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from sparktrain.store.hadoop.webhdfs import _WebClient, _WebWriter


class Answer:
    def __init__(self, said: bool | None) -> None:
        self._said = said
        self.content = b"" if said is None else b"{}"

    def json(self) -> dict[str, bool | None]:
        return {"boolean": self._said}


@pytest.mark.parametrize(("said", "error"), [(None, None), (True, None), (False, FileExistsError)])
def test_a_gateway_that_knows_no_options_says_yes_or_no(said: bool | None, error: type[OSError] | None) -> None:
    client = _WebClient("http://127.0.0.1:1", "ann", 1.0)
    client._client._rename = lambda source, **options: Answer(said)
    client._client.status = lambda path: {"type": "FILE", "length": 1, "modificationTime": 1}
    if error is None:
        client.rename("/a", "/b")
    else:
        with pytest.raises(error):
            client.rename("/a", "/b")


class Gateway:
    """What takes the requests of a writer."""

    def __init__(self) -> None:
        self.whole: list[bytes] = []
        self.begun = Event()
        self.broken_off = Event()

    def send(self, data: bytes | Iterator[bytes]) -> None:
        self.begun.set()
        try:
            self.whole.append(data if isinstance(data, bytes) else b"".join(data))
        except ConnectionError:
            self.broken_off.set()
            raise


@pytest.mark.parametrize("pieces", [[], [b"one"], [b"one", b"two"], [bytes([n]) for n in range(50)]])
def test_a_file_is_one_request_whatever_its_pieces(pieces: list[bytes]) -> None:
    gateway = Gateway()
    writer = _WebWriter(gateway.send)
    for piece in pieces:
        writer.write(memoryview(piece))
    writer.close()
    assert gateway.whole == [b"".join(pieces)]


@pytest.mark.timeout(30)
def test_a_file_that_is_abandoned_is_broken_off() -> None:
    gateway = Gateway()
    writer = _WebWriter(gateway.send)
    for _ in range(3):
        writer.write(memoryview(b"piece"))
    writer.abandon()
    assert gateway.broken_off.wait(10.0)
    assert gateway.whole == []


def test_a_request_that_fails_fails_the_writes_after_it() -> None:
    def fail(data: Any) -> None:
        raise OSError("connection reset")

    writer = _WebWriter(fail)
    writer.write(memoryview(b"first"))
    with pytest.raises(OSError, match="connection reset"):
        write_for_ever(writer)
    with pytest.raises(OSError, match="connection reset"):
        writer.close()


def write_for_ever(writer: _WebWriter) -> None:
    while True:
        writer.write(memoryview(b"piece"))
