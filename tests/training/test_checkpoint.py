"""Resuming from a checkpoint in a fresh process: equal to no interruption, or refused with a reason."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparktrain.executor.zygote_process import ZygoteProcess
from tests.process.harness import MARK, Bench, Trial, marked
from tests.training import resuming

ROOT = Path(__file__).parents[2]
MODULE = resuming.__name__


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A zygote that has imported what the functions of `resuming` need."""
    zygote = ZygoteProcess(tmp_path, env={MARK: tmp_path.name, "TF_CPP_MIN_LOG_LEVEL": "2"})
    zygote.start()
    assert await zygote.preload(("tensorflow", "keras")) == {}
    yield Bench(zygote, tmp_path)
    await zygote.close()
    assert not marked(tmp_path.name)


async def call(bench: Bench, name: str, **params: object) -> Trial:
    trial = await bench.run(f"{MODULE}:{name}", params=params, sys_path=(str(ROOT),))
    assert trial.outcome is not None
    failure = trial.outcome.failure
    assert failure is None, f"{name}: {failure.summary}\n{failure.traceback}\n{trial.log}"
    return trial


async def test_checkpoints(bench: Bench, tmp_path: Path) -> None:
    folder = str(tmp_path)
    straight = await call(bench, "train_straight", folder=folder)
    for shift in (False, True):
        resumed = await call(bench, "train_resumed", folder=folder, shift=shift)
        assert resumed.metrics == straight.metrics
    await call(bench, "resume_as_another_rank", folder=folder)
    own = await call(bench, "resume_own_optimizers", folder=folder)
    assert own.metrics == {"steps": 1.0, "steps of one built late": 0.0}
    await call(bench, "refuse_other_models", folder=folder)
    await call(bench, "refuse_an_unbuilt_model")
    pieces = await call(bench, "fit_in_pieces", folder=folder)
    assert pieces.metrics["compared"] > 20
    await call(bench, "resume_in_bfloat16", folder=folder)
    await call(bench, "export_once", folder=folder)


async def test_training_waits_for_a_copy_in_memory_alone(bench: Bench) -> None:
    """How long the copy takes is measured beside a plain copy by `benchmarks.checkpoint_stall`, on a quiet machine."""
    cost = (await call(bench, "capture_into_spare_memory")).metrics
    assert cost["bytes"] > 99e6
    assert cost["new arrays"] == 0, "the copy reuses the memory of the last one"
    assert cost["peak_bytes"] < cost["bytes"] / 100, "and nothing is copied twice"
    assert cost["opened"] == 0, "no file is written while training waits"
