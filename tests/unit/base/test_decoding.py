"""Types are prepared by one thread at a time, before they are decoded."""

import os
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sparktrain.base.decoding import converted, from_json, from_msgpack
from sparktrain.base.threads import spawn
from tests.support.processes import wait_until

LIMIT_S = 10.0


class Part(msgspec.Struct):
    """What both sides decode."""

    size: int


READS: dict[str, Callable[[Any], Any]] = {
    "json": lambda kind: from_json(b"[]", kind),
    "msgpack": lambda kind: from_msgpack(b"\x90", kind),
    "converted": lambda kind: converted([], kind),
}


def test_values_of_a_type() -> None:
    assert from_json(b'{"size": 3}', Part) == from_msgpack(b"\x81\xa4size\x03", Part) == Part(3)
    assert converted({"size": "3"}, Part, strict=False) == Part(3)
    with pytest.raises(msgspec.ValidationError, match="size"):
        from_json(b"{}", Part)


@pytest.mark.parametrize("second", READS)
@pytest.mark.parametrize("first", ["json", "msgpack"])
def test_one_thread_at_a_time_prepares_a_type(monkeypatch: pytest.MonkeyPatch, first: str, second: str) -> None:
    prepares, goes_on = threading.Event(), threading.Event()
    module = getattr(msgspec, first)
    decoder = module.Decoder

    def slow(kind: Any, **options: Any) -> Any:
        prepares.set()
        assert goes_on.wait(LIMIT_S)
        return decoder(kind, **options)

    monkeypatch.setattr(module, "Decoder", slow)
    kind = list[msgspec.defstruct("Fresh", ["value"])]  # type: ignore[misc]
    ended = [threading.Event() for _ in range(2)]
    spawn(lambda: (READS[first](kind), ended[0].set()), "first")
    assert prepares.wait(LIMIT_S)
    waits = threading.Event()
    spawn(lambda: (waits.set(), READS[second](kind), ended[1].set()), "second")
    assert waits.wait(LIMIT_S)
    assert not ended[1].wait(0.05)
    goes_on.set()
    assert all(event.wait(LIMIT_S) for event in ended)


def test_a_process_that_is_forked_meanwhile_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    prepares, goes_on = threading.Event(), threading.Event()
    decoder = msgspec.json.Decoder

    def slow(kind: Any, **options: Any) -> Any:
        prepares.set()
        goes_on.wait(0.2)
        return decoder(kind, **options)

    monkeypatch.setattr(msgspec.json, "Decoder", slow)
    kind = list[msgspec.defstruct("Forked", ["value"])]  # type: ignore[misc]
    spawn(lambda: READS["json"](kind), "first")
    assert prepares.wait(LIMIT_S)
    child = os.fork()
    if not child:
        os._exit(0 if from_msgpack(b"\x90", kind) == [] else 1)
    wait_until(lambda: os.waitpid(child, os.WNOHANG) == (child, 0), LIMIT_S, "the child has decoded")
