"""`local_context` in this process: what a function has of a gang, and what is left of it afterwards."""

import asyncio
import logging
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import sparktrain
from sparktrain.errors import CheckpointError, GangNeededError, NestedCallError, RunFailedError, SessionError, SpecError
from sparktrain.testing import local_context


def train(lr: float, ctx: Any) -> dict[str, float]:
    ctx.report(0, loss=lr)
    return {"loss": lr}


def save(ctx: Any) -> int:
    found = ctx.checkpoint.restore()
    step = 0 if found is None else found.step
    ctx.checkpoint.save(step + 1, note="saved")
    return step


def test_is_a_public_name() -> None:
    assert sparktrain.testing.local_context is local_context
    assert "testing" in dir(sparktrain)
    with pytest.raises(AttributeError, match="no attribute 'local_contexts'"):
        _ = sparktrain.testing.local_contexts


def test_a_function_is_called_with_parameters_and_context(tmp_path: Path) -> None:
    with local_context({"lr": 0.5}, directory=tmp_path, seed=7) as ctx:
        result = train(**ctx.params, ctx=ctx)
        assert (ctx.seed, ctx.rank, ctx.size, ctx.generation) == (7, 0, 1, 1)
        assert Path(ctx.log_dir).is_relative_to(tmp_path)

    assert result == {"loss": 0.5}
    assert [(each.step, each.metrics) for each in ctx.reports] == [(0, {"loss": 0.5})]


def test_a_call_gives_metrics_or_raises_what_the_function_raises() -> None:
    with local_context({"lr": 1}, metric="loss") as ctx:
        assert ctx.call(train) == {"loss": 1.0}
        with pytest.raises(SpecError, match="once in a context"):
            ctx.call(train)
    with local_context({"lr": 1}, metric="accuracy") as ctx, pytest.raises(RunFailedError, match="lacks metric 'accur"):
        ctx.call(train)
    with local_context() as ctx, pytest.raises(ZeroDivisionError) as raised:
        ctx.call(lambda: 1 / 0)
    assert raised.traceback[-1].path == Path(__file__), "a debugger stops at the user's line"


def test_another_context_resumes_and_keeps_two_checkpoints(tmp_path: Path) -> None:
    steps = []
    for _ in range(3):
        with local_context(directory=tmp_path) as ctx:
            steps.append(save(ctx))
    assert steps == [0, 1, 2]
    assert (ctx.saved_steps, ctx.generation) == ((2, 3), 3)


def test_a_corrupt_checkpoint_is_passed_over_until_none_is_left(tmp_path: Path) -> None:
    for _ in range(2):
        with local_context(directory=tmp_path) as ctx:
            save(ctx)
    first, second = sorted(tmp_path.rglob("manifest-*"))
    second.write_bytes(b"{}")

    with local_context(directory=tmp_path) as ctx:
        assert save(ctx) == 1
    for manifest in tmp_path.rglob("manifest-*"):
        manifest.write_bytes(b"{}")
    with pytest.raises(CheckpointError, match="is corrupt"), local_context(directory=tmp_path):
        pass
    assert first.exists()


def test_works_in_a_running_event_loop() -> None:
    async def main() -> int:
        with local_context() as ctx:
            return save(ctx)

    assert asyncio.run(main()) == 0


def test_advises_to_stop() -> None:
    with local_context() as ctx:
        assert not ctx.should_stop()
        ctx.advise_stop()
        assert ctx.should_stop()


def test_a_temporary_directory_is_removed() -> None:
    with local_context() as ctx:
        save(ctx)
        folder = Path(ctx.log_dir)
        assert folder.is_dir()
    assert not folder.exists()


def spoil(ctx: Any) -> None:
    os.environ["LEAK"] = "1"
    os.environ.pop("HOME", None)
    os.chdir("/")
    os.umask(0)
    sys.path.append("/leak")
    sys.argv.append("leak")
    sys.stdout = sys.stderr
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    random.seed(5)
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(1)
    warnings.simplefilter("ignore")
    ctx.report(0)
    raise ValueError("spoilt")


def state() -> list[Any]:
    mask = os.umask(0)
    os.umask(mask)
    root = logging.getLogger()
    return [
        dict(os.environ), os.getcwd(), mask, list(sys.path), list(sys.argv), sys.stdout, list(sys.meta_path),
        signal.getsignal(signal.SIGTERM), random.getstate(), list(root.handlers), root.level, list(warnings.filters),
    ]  # fmt: skip


def test_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    before = state()
    for _ in range(2):
        with local_context(env={"MINE": "1"}) as ctx:
            assert (os.environ["MINE"], os.environ["CUDA_VISIBLE_DEVICES"]) == ("1", "1")
            assert sys.argv == ["sparktrain"]
            with pytest.raises(ValueError, match="spoilt"):
                spoil(ctx)
        assert state() == before


def test_modules_of_the_working_directory_can_be_imported_within(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_test.py").write_text("VALUE = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    with local_context():
        assert os.listdir(".") == []
        assert __import__("beside_the_test").VALUE == 3
    assert sys.path[0] == ""


def test_generators_are_seeded_as_those_of_a_trial() -> None:
    drawn = []
    for seed in (1, 2, 1):
        with local_context(seed=seed):
            drawn.append(random.random())
    assert drawn[0] == drawn[2] != drawn[1]


def test_spark_is_refused_within_and_not_afterwards() -> None:
    from pyspark import java_gateway

    before = java_gateway.launch_gateway
    with local_context(), pytest.raises(SessionError, match="cannot use Spark"):
        java_gateway.launch_gateway()
    assert java_gateway.launch_gateway is before


def test_a_context_and_a_sweep_within_a_context_are_refused() -> None:
    with local_context():
        with pytest.raises(NestedCallError, match="in another one"), local_context():
            pass
        with pytest.raises(NestedCallError, match="within a trial"):
            sparktrain.sweep(train, {"lr": [1]}, metric="loss")
    with local_context():
        pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"params": [1]}, "params is"),
        ({"params": {"data": object()}}, "params: 'data'"),
        ({"size": 0}, "size .0. must be at least 1"),
        ({"size": "2"}, "size is"),
        ({"size": 2, "backend": "horovad"}, "did you mean 'horovod'"),
        ({"seed": 1.5}, "seed is"),
        ({"metric": ""}, "metric"),
        ({"env": ["A"]}, "env is list"),
        ({"directory": "hdfs:///runs"}, "is a URL"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        local_context(**arguments)


def test_rank_0_of_several_knows_its_gang_and_says_what_needs_the_others() -> None:
    with local_context(size=4, backend="horovod") as ctx:
        assert (ctx.rank, ctx.size, ctx.role, ctx.local_rank) == (0, 4, "chief", 0)
        assert [len(each) for each in ctx.cluster_spec.values()] == [1, 3]
        with pytest.raises(GangNeededError, match=r"needs all 4 members.*mirrored=True.*workers=4"):
            ctx._gang.ring.broadcast([], name="weights")


def test_members_without_a_backend_never_need_each_other() -> None:
    with local_context(size=4, backend="none") as ctx:
        assert (ctx.size, ctx._gang.ring.size) == (4, 1)


def test_is_for_one_thread_at_a_time() -> None:
    refused: list[BaseException] = []

    def enter() -> None:
        try:
            with local_context():
                pass
        except NestedCallError as error:
            refused.append(error)

    with local_context():
        other = threading.Thread(target=enter)
        other.start()
        other.join(30)
    assert len(refused) == 1
