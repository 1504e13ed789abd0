"""The HTTP client of HDFS, with fake gateways."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from sparktrain.store.hadoop.webhdfs import _WebClient, _WebWriter


class Answer:
    def __init__(self, renamed: bool | None) -> None:
        self._renamed = renamed
        self.content = b"" if renamed is None else b"{}"

    def json(self) -> dict[str, bool | None]:
        return {"boolean": self._renamed}


@pytest.mark.parametrize(("renamed", "error"), [(None, None), (True, None), (False, FileExistsError)])
def test_a_gateway_without_rename_options_answers_true_or_false(
    renamed: bool | None, error: type[OSError] | None
) -> None:
    client = _WebClient("http://127.0.0.1:1", "ann", 1.0)
    client._client._rename = lambda source, **options: Answer(renamed)
    client._client.status = lambda path: {"type": "FILE", "length": 1, "modificationTime": 1}
    if error is None:
        client.rename("/a", "/b")
    else:
        with pytest.raises(error):
            client.rename("/a", "/b")


class Gateway:
    """A gateway that receives the requests of a writer."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.started = Event()
        self.aborted = Event()

    def send(self, data: bytes | Iterator[bytes]) -> None:
        self.started.set()
        try:
            self.bodies.append(data if isinstance(data, bytes) else b"".join(data))
        except ConnectionError:
            self.aborted.set()
            raise


@pytest.mark.parametrize("pieces", [[], [b"one"], [b"one", b"two"], [bytes([n]) for n in range(50)]])
def test_a_file_is_one_request_for_any_number_of_pieces(pieces: list[bytes]) -> None:
    gateway = Gateway()
    writer = _WebWriter(gateway.send)
    for piece in pieces:
        writer.write(memoryview(piece))
    writer.close()
    assert gateway.bodies == [b"".join(pieces)]


@pytest.mark.timeout(30)
def test_abandoning_a_file_aborts_its_request() -> None:
    gateway = Gateway()
    writer = _WebWriter(gateway.send)
    for _ in range(3):
        writer.write(memoryview(b"piece"))
    writer.abandon()
    assert gateway.aborted.wait(10.0)
    assert gateway.bodies == []


def test_a_request_that_fails_fails_the_writes_after_it() -> None:
    def fail(data: Any) -> None:
        raise OSError("connection reset")

    writer = _WebWriter(fail)
    writer.write(memoryview(b"first"))
    with pytest.raises(OSError, match="connection reset"):
        write_forever(writer)
    with pytest.raises(OSError, match="connection reset"):
        writer.close()


def write_forever(writer: _WebWriter) -> None:
    while True:
        writer.write(memoryview(b"piece"))
