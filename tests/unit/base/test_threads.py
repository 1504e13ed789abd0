"""Work beside an event loop is done also where the interpreter starts no thread."""

import asyncio
import threading

import pytest

from sparktrain.base.threads import aside


@pytest.mark.parametrize("ends", [True, False])
def test_work_is_done_while_the_interpreter_ends(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12 refuses threads from the end of the main one on: there an open pool was not closed in order."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def work() -> str:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        return await asyncio.wait_for(aside(lambda: "done"), 5.0)

    if ends:
        monkeypatch.setattr(threading, "main_thread", threading.Thread)
        assert asyncio.run(work()) == "done"
    else:
        with pytest.raises(RuntimeError, match="create new thread"):
            asyncio.run(work())
