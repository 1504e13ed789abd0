"""Each way in which a training function fails in a real process has a kind and a message of its own."""

import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from sparktrain.executor.exit_causes import classify
from sparktrain.executor.log_tail import tail_lines
from sparktrain.executor.zygote_process import ZygoteProcess
from sparktrain.state.outcome import FailureKind as Kind
from tests.process.harness import MARK, Bench, marked

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zygote(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ZygoteProcess]:
    """One zygote for all tests: it forks the next member however the last one failed."""
    folder = tmp_path_factory.mktemp("zygote")
    zygote = ZygoteProcess(folder, env={MARK: str(folder)})
    zygote.start()
    yield zygote
    await zygote.close()
    assert not marked(str(folder))


def _unpicklable() -> None:
    class OddError(Exception):
        def __init__(self, a, b):
            super().__init__(a)
            self.lock = open(os.devnull)  # noqa: SIM115

        def __reduce__(self):
            raise TypeError("no")

    raise OddError("cannot be pickled", 2)


def _broken_str() -> None:
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    raise MuteError


def _recursion() -> int:
    return _recursion()


def _group() -> None:
    raise ExceptionGroup("two at once", [ValueError("one"), KeyError("two")])


def _raises(error: BaseException) -> Callable[[], None]:
    def train() -> None:
        raise error

    return train


def _calls(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: function(*args)


@dataclass
class Case:
    train: Callable[..., Any] | str
    kind: Kind
    summary: str
    """Text in the summary."""
    metric: str | None = "acc"
    in_traceback: str = ""


def _sparks() -> float:
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    return 1.0


RAISED = {
    "spark": Case(_sparks, Kind.EXCEPTION, "SessionError: a trial cannot use Spark: it runs on an executor"),
    "exception": Case(_raises(ValueError("bad lr\nsecond")), Kind.EXCEPTION, "ValueError: bad lr second"),
    "unpicklable": Case(_unpicklable, Kind.EXCEPTION, "OddError: cannot be pickled", in_traceback="in _unpicklable"),
    "broken-str": Case(_broken_str, Kind.EXCEPTION, "MuteError: (its message cannot be shown: RuntimeError)"),
    "recursion": Case(_recursion, Kind.EXCEPTION, "RecursionError: maximum", in_traceback="repeated"),
    "group": Case(_group, Kind.EXCEPTION, "ExceptionGroup: two at once (2 sub", in_traceback="KeyError: 'two'"),
    "interrupt": Case(_raises(KeyboardInterrupt()), Kind.EXCEPTION, "KeyboardInterrupt: the process was sent SIGINT"),
    "memory": Case(_raises(MemoryError()), Kind.MEMORY, "MemoryError (lower the batch size"),
    "sys-exit": Case(_calls(sys.exit, 0), Kind.EXIT, "sys.exit(0) was called before the function returned"),
    "parameter": Case(lambda lr: 1, Kind.EXCEPTION, "missing 1 required positional argument: 'lr'"),
    "surrogate": Case(_raises(ValueError("\udcff")), Kind.EXCEPTION, "ValueError: \\udcff"),
    "nan": Case(_calls(float, "nan"), Kind.METRIC, "metric 'acc' is nan, and no finite number"),
    "missing": Case(lambda: {"accuracy": 1, "loss": 2}, Kind.METRIC, "lacks metric 'acc'; it has 'accuracy', 'loss'"),
    "text": Case(lambda: "0.9", Kind.RESULT, "the function returned '0.9' of type str; return a number, or"),
    "nothing": Case(lambda: None, Kind.RESULT, "the function returned None; return a number"),
    "not-there": Case("nowhere.train:train", Kind.LOAD, "module 'nowhere' cannot be imported on executor host"),
    "no-function": Case("os:sep", Kind.LOAD, "TypeError: a function was expected, not str"),
}
ENDED = {
    "segv": Case(_calls(ctypes.string_at, 0), Kind.SIGNAL, "ended by SIGSEGV (segmentation fault): a native library"),
    "abort": Case(_calls(os.abort), Kind.SIGNAL, "ended by SIGABRT (aborted)"),
    "kill": Case(_calls(signal.raise_signal, 9), Kind.KILLED, "ended by SIGKILL (killed): from outside of sparktrain"),
    "exit": Case(_calls(os._exit, 3), Kind.EXIT, "process exited with code 3 before the function returned"),
    "exit-0": Case(_calls(os._exit, 0), Kind.EXIT, "process exited with code 0 before the function returned"),
}


@pytest.mark.parametrize("case", RAISED.values(), ids=RAISED)
async def test_a_function_that_raises_or_returns_no_metrics_fails(bench: Bench, case: Case) -> None:
    trial = await bench.run(case.train, metric=case.metric)

    assert trial.failure.kind is case.kind
    assert case.summary in trial.failure.summary
    assert "\n" not in trial.failure.summary
    assert len(trial.failure.summary) <= 500
    assert case.in_traceback in trial.failure.traceback
    assert "sparktrain/training" not in trial.failure.traceback
    assert trial.log.endswith(trial.failure.ending), "the log ends with the error of the function"
    assert trial.exited is not None
    assert trial.exited.status == 0


@pytest.mark.parametrize("case", ENDED.values(), ids=ENDED)
async def test_a_process_that_ends_early_fails(bench: Bench, case: Case) -> None:
    trial = await bench.run(case.train, metric=case.metric)

    assert trial.outcome is None
    assert trial.exited is not None
    tail = tail_lines(trial.home / "log.txt")
    failure = classify(trial.exited, log_tail=tail)
    assert failure.kind is case.kind
    assert case.summary in failure.summary
    if case.kind is Kind.SIGNAL:
        assert any("Fatal Python error" in line for line in tail), "faulthandler shows the line"
