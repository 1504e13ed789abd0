"""The messages of `ctx`, with a wire that records them."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.errors import SpecError
from sparktrain.protocol import pipe_messages as m
from sparktrain.state.outcome import Report
from sparktrain.training.context import TrainContext
from sparktrain.training.notices import issued_notices, kept_apart
from tests.support.member_calls import member_call


class Recorder:
    """A connection that records what is sent."""

    def __init__(self) -> None:
        self.sent: list[m.FromMember] = []
        self.advised = False

    def send(self, message: m.FromMember) -> None:
        self.sent.append(message)

    def judged(self, step: int, timeout_s: float) -> bool | None:
        return None

    def stop_advised(self) -> bool:
        return self.advised


class Noon:
    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 12.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


@pytest.fixture
def wire() -> Recorder:
    return Recorder()


@pytest.fixture
def ctx(tmp_path: Path, wire: Recorder) -> TrainContext:
    (tmp_path / "files").mkdir()
    member = Member(RunId("run"), TrialId(5), Generation(2), Rank(1))
    call = member_call(params={"lr": 0.1}, size=4, seed=9, metric="loss")
    paths = {"work_dir": "", "log_path": "", "log_dir": str(tmp_path / "files")}
    assignment = m.Assignment(member=member, call=call, code=m.LocalCode("", False, ()), **paths)
    return TrainContext(assignment, wire, Noon())


def test_knows_its_place(ctx: TrainContext) -> None:
    assert (ctx.trial, ctx.generation, ctx.rank, ctx.size, ctx.seed) == (5, 2, 1, 4, 9)
    assert dict(ctx.params) == {"lr": 0.1}
    with pytest.raises(TypeError):
        ctx.params["lr"] = 0.2  # type: ignore[index]


def test_a_report_is_sent(ctx: TrainContext, wire: Recorder) -> None:
    ctx.report(np.int64(0), loss=np.float32(0.5))
    ctx.report(step=10, loss=float("-inf"), accuracy=1)

    assert wire.sent == [
        m.Reported(Report(0, {"loss": 0.5}, time=12.0)),
        m.Reported(Report(10, {"loss": float("-inf"), "accuracy": 1.0}, time=12.0)),
    ]


@pytest.mark.parametrize(
    ("step", "metrics", "error", "words"),
    [
        (3, {}, ValueError, r"step=3\) came after step 3: steps must grow, over all epochs"),
        (0, {}, ValueError, r"step=0\) came after step 3"),
        (-1, {}, ValueError, r"step=-1\): counts from 0"),
        (4.0, {}, TypeError, r"step=4.0\): an integer is needed, not float"),
        (True, {}, TypeError, "not bool"),
        ("4", {}, TypeError, "not str"),
        (4, {"loss": "low"}, TypeError, "metric 'loss' is 'low' of type str, and must be a number"),
        (4, {"loss": [1]}, TypeError, "metric 'loss' is a list of 1"),
        (2**63, {}, ValueError, "step has 64 bits, and must be below"),
        (2**70, {}, ValueError, "step has 71 bits, and must be below"),
        (
            4,
            {f"m{number}": 1 for number in range(10_001)},
            ValueError,
            r"step=4\) has 10,001 metrics, and at most",
        ),
        (4, {"m" * (2**20 + 1): 1}, ValueError, "names of metrics with 1,048,577 bytes"),
    ],
)
def test_what_is_no_report(
    ctx: TrainContext, wire: Recorder, step: Any, metrics: dict[str, Any], error: type[Exception], words: str
) -> None:
    ctx.report(3, loss=1)

    with pytest.raises(error, match=words):
        ctx.report(step, **metrics)
    assert len(wire.sent) == 1
    ctx.report(4, loss=1)
    ctx.report(2**63 - 1, **{f"m{number}": 1 for number in range(10_000)})


def test_a_metric_may_have_any_name(ctx: TrainContext, wire: Recorder) -> None:
    names = {"step": 0.5, "self": 1.5, "metrics": 2.5, "ctx": 3.5, "a b/c": 4.5}
    ctx.report(3, **names)
    ctx.report(step=4, self=1.0)
    sent = [message.report for message in wire.sent if isinstance(message, m.Reported)]
    assert [(each.step, each.metrics) for each in sent] == [(3, names), (4, {"self": 1.0})]


def test_a_report_leaves_out_what_is_no_number_and_says_so_once(
    ctx: TrainContext, wire: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept_apart():
        ctx.report(1, loss=0.5, note="warm", best=None)
        ctx.report(2, loss=0.25, note="cold", best=2)

        assert sorted(issued_notices()) == [
            "ctx.report(): 'best' is None, and not a number, so reports leave it out",
            "ctx.report(): 'note' is 'warm' of type str, and not a number, so reports leave it out",
        ]
    assert [each.report.metrics for each in wire.sent if isinstance(each, m.Reported)] == [
        {"loss": 0.5},
        {"loss": 0.25, "best": 2.0},
    ]
    assert capsys.readouterr().err.count("'note'") == 1


def test_reports_of_threads_are_in_order(ctx: TrainContext, wire: Recorder) -> None:
    steps = iter(range(400))
    taking = threading.Lock()

    def report() -> None:
        for _ in range(100):
            with taking:
                ctx.report(next(steps), loss=1)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [message.report.step for message in wire.sent if isinstance(message, m.Reported)] == list(range(400))


def test_belongs_to_its_process(ctx: TrainContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(RuntimeError, match=r"belongs to process \d+, and process 1 called it"):
        ctx.report(0)


def test_hears_advice(ctx: TrainContext, wire: Recorder) -> None:
    assert not ctx.should_stop()
    wire.advised = True
    assert ctx.should_stop()


@pytest.mark.parametrize(
    ("use", "instead"),
    [
        (lambda ctx: ctx.shard([1.0]), "pass the arrays to fit"),
        (lambda ctx: ctx.strategy(), "use ctx.distribute"),
        (lambda ctx: ctx.distribute_tape(None), "use ctx.distribute"),
    ],
    ids=["shard", "strategy", "distribute_tape"],
)
def test_what_needs_tensorflow_names_the_extra_and_what_to_write_without(
    ctx: TrainContext, use: Callable[[TrainContext], Any], instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(
        SpecError, match=rf"needs TensorFlow, which is not installed.*{instead}.*sparktrain\[tensorflow"
    ):
        use(ctx)
