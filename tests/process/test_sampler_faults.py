"""Samplers of the user that exit or hang: the call ends in time, with the cause, and the next one works."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.errors import SamplerError
from tests.support.functions import square

LIMIT_S = 60.0
SOON_S = 10.0
"""Less than the 15 s after which Ctrl-C once gave up, and the 300 s for which the end of a run waited."""


class OneCase:
    """Proposes one case; what it is asked after that is `then`."""

    learns = True

    def __init__(self, then: Callable[[], Any]) -> None:
        self.then = then
        self._asked = False

    def suggest(self, count: int) -> st.Suggestion:
        if self._asked:
            self.then()
        self._asked = True
        return st.Suggestion(({"x": 2},), False)

    def observe(self, observation: Any) -> None:
        """Nothing is learnt."""

    def restore(self, history: Sequence[Any]) -> None:
        """Nothing is kept."""


@contextmanager
def stuck() -> Iterator[tuple[Callable[[], None], threading.Event]]:
    """What hangs until the block ends, and whether something does."""
    entered, let = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        let.wait(LIMIT_S)

    yield wait, entered
    let.set()


def exits() -> None:
    raise SystemExit(3)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"metric": "y", "mode": "max", "dir": str(tmp_path), "progress": False, "trials": 4}


def test_a_sampler_that_exits_or_hangs_ends_its_run_and_the_pool_has_the_next(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    space = {"x": st.uniform(0, 9)}
    with st.pool(st.local(slots=1), preload=[]) as pool:
        with pytest.raises(SamplerError, match="raised SystemExit when it was asked for 1 case: 3; the run is stopped"):
            pool.sweep(square, space, sampler=OneCase(exits), **options)
        with stuck() as (wait, _), caplog.at_level(logging.WARNING, "sparktrain"):
            began = SystemClock().now()
            made = pool.sweep(square, space, sampler=OneCase(wait), timeout=1, **options)
            assert SystemClock().now() < began + 1 + SOON_S
            assert (made.status, made.reason) == ("stopped", "the run's timeout (1 s) is over")
            assert [trial.metrics for trial in made.trials] == [{"y": 4.0}]
        assert pool.sweep(square, {"x": [3]}, **options).best.metrics == {"y": 9.0}


def test_ctrl_c_ends_a_run_whose_sampler_hangs_and_nothing_keeps_the_process(options: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    with stuck() as (wait, entered):

        def interrupt() -> None:
            entered.wait(LIMIT_S)
            sent.append(SystemClock().now())
            os.kill(os.getpid(), signal.SIGINT)

        sent: list[float] = []
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt, match=r"was interrupted; .* has its results so far: "):
            st.sweep(square, {"x": st.uniform(0, 9)}, sampler=OneCase(wait), spark=st.local(slots=1), **options)
        assert SystemClock().now() < sent[0] + SOON_S
        assert [each.name for each in set(threading.enumerate()) - before if not each.daemon] == []
