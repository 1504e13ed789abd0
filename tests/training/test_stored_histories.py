"""What a real Keras model reported and exported, read back from the run directory, after a restart."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import Coordinator
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.run_request import RunOutcome
from sparktrain.executor.agent import Agent
from sparktrain.executor.warm_zygote import WarmZygote
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.search.space import grid
from sparktrain.store.hadoop.token_file import TokenFile
from tests.process.agents import PLACE
from tests.process.harness import MARK, marked
from tests.support.run_stages import requested

EPOCHS, WITHIN_S = 4, 180.0
DRIVER = DriverIdentity(host="h", pid=1, started=0.0, sparktrain="1")


@pytest.fixture(autouse=True, scope="module")
def _by_value() -> Iterator[None]:
    """Members do not have this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def fit(units: int, ctx: Any) -> float:
    """Loses its zygote, and so itself, after the checkpoint of the second epoch; then it resumes."""
    import keras

    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])

    def lose(epoch: int, logs: Any) -> None:
        if ctx.generation == 1 and epoch == 2:
            print("lost in the third epoch")
            sys.stdout.flush()
            ctx.checkpoint.wait()
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()

    calls = [*ctx.keras_callbacks(), keras.callbacks.LambdaCallback(on_epoch_begin=lose)]
    history = model.fit(x, y, batch_size=16, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=calls).history
    ctx.export(model)
    Path(ctx.log_dir, "fit.json").write_text(json.dumps(history))
    np.save(Path(ctx.log_dir, "predicted.npy"), model.predict(x, verbose=0))
    return float(history["mae"][-1])


async def swept(scratch: Path, mark: str) -> RunOutcome:
    """A real coordinator and a real agent in this process, and the members that the agent's zygote forks."""
    options = SweepOptions(
        metric="result", mode="min", name="fits", dir=str(scratch / "runs"), backend="none", preload=["keras"], seed=1
    )
    work = requested(compose(fit, grid(units=[3]), options), driver=DRIVER)
    transport, tokens = MemoryTransport(), TokenFile(scratch)
    made = Coordinator(Server(transport.listener, SystemClock(), {}, ()), SystemClock())
    await made.open()
    warm = WarmZygote(scratch, sys.path, {MARK: mark, "TF_CPP_MIN_LOG_LEVEL": "2"}, SystemClock())
    warm.start()
    dialer = transport.dialer()
    agent = Agent(PLACE, warm, dialer, await dialer.attend(1.0), SystemClock(), tokens)
    attending = asyncio.create_task(agent.run())
    try:
        return await asyncio.wait_for(made.run(work), WITHIN_S)
    finally:
        await made.close("over")
        attending.cancel()
        await asyncio.gather(attending, return_exceptions=True)
        await warm.close()
        await dialer.close()
        tokens.close()


@pytest.mark.timeout(240)
@pytest.mark.all(
    case="what a Keras model reported and exported, after a restart",
    covered_by="`training/test_local_gangs`: the stored model; `process/test_local_context`: a fit that resumes",
)
async def test_a_history_is_what_fit_reported_and_a_model_predicts_what_it_did(tmp_path: Path) -> None:
    ran = await swept(tmp_path, tmp_path.name)
    assert not marked(tmp_path.name)
    result = st.load(str(tmp_path / "runs" / "fits"))
    assert isinstance(result, st.SweepResult)
    trial = result.best
    assert trial == ran.trials[0]
    assert [restart.resumed_from_step for restart in trial.restarts] == [8]

    files = tmp_path / "runs" / "fits" / "trials" / "0000" / "generation-2" / "rank-0" / "files"
    reported = json.loads((files / "fit.json").read_text())
    frame = trial.history
    assert frame["step"].tolist() == [0, 1, 2, 3]
    assert frame["generation"].tolist() == [1, 1, 2, 2]
    assert {name: frame[name].tolist() for name in reported} == {
        name: pytest.approx(values) for name, values in reported.items()
    }
    assert frame["time"].is_monotonic_increasing
    assert trial.read_log(generation=1, tail=1) == "lost in the third epoch\n"
    assert "third epoch" not in trial.read_log()

    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    predicted = trial.load_model().predict(x, verbose=0)
    np.testing.assert_allclose(predicted, np.load(files / "predicted.npy"), rtol=1e-5)
    assert trial.model_path == str(files.parent / "model.keras")
