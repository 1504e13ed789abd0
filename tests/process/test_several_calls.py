"""Several calls at the same time, on one pool and on one session, with real agents."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.driver.event_loop import call
from sparktrain.driver.slots.session_pools import SESSION_POOLS
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(240)
SOON_S = 90.0
ALSO = pytest.mark.all(
    case="three sweeps on one pool, and the loss of an agent among two runs",
    covered_by="two sweeps, a gang beside a sweep; `histories/test_several_runs`, `unit/state/test_several_runs`",
)


AGENTS = 2, "numpy"
"""Two warm agents for the calls of this file."""


def square(x: int) -> dict[str, float]:
    """A short trial."""
    time.sleep(0.2)
    return {"y": float(x * x)}


def held(x: int, folder: str) -> dict[str, float]:
    """A trial that lasts as long as FOLDER/hold is there."""
    Path(folder, f"entered-{x}").touch()
    while Path(folder, "hold").exists():
        time.sleep(0.01)
    return {"y": float(x)}


def failing(x: int) -> dict[str, float]:
    """A trial that fails."""
    raise ValueError(f"{x} is wrong")


def together(folder: str, ctx: Any) -> dict[str, float]:
    """A member that waits for the other one."""
    Path(folder, f"rank-{ctx.rank}").touch()
    while not Path(folder, f"rank-{1 - ctx.rank}").exists():
        time.sleep(0.01)
    return {"size": float(ctx.size)}


def resumable(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Checkpoints each of its steps, and notes those that it makes, until FOLDER/hold is gone."""
    restored = ctx.checkpoint.restore()
    step = 0 if restored is None else restored.step
    while Path(folder, "hold").exists():
        step += 1
        with Path(folder, f"steps-{x}").open("a") as steps:
            steps.write(f"{step}\n")
        ctx.report(step, y=float(step))
        ctx.checkpoint.save(step)
        time.sleep(0.02)
    return {"y": float(step)}


def options(runs: Path, **more: Any) -> dict[str, Any]:
    return {"metric": "y", "mode": "max", "dir": str(runs), "progress": False, "backend": "none", **more}


class Calls:
    """Calls in threads of their own: what each returned or raised."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], Any]) -> None:
        def record() -> None:
            try:
                self.results[name] = work()
            except BaseException as error:
                self.results[name] = error

        thread = threading.Thread(target=record)
        thread.start()
        self._threads.append(thread)

    def join(self) -> dict[str, Any]:
        for thread in self._threads:
            thread.join(SOON_S)
            assert not thread.is_alive()
        return self.results


def values(result: Any) -> list[float]:
    """The metrics of a sweep."""
    assert isinstance(result, st.SweepResult), result
    return sorted(trial.metrics["y"] for trial in result.trials)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=ALSO)])
def test_sweeps_share_a_pool(pool: st.Pool, runs: Path, count: int) -> None:
    calls = Calls()
    for number in range(count):
        name = f"sweep-{number}"
        calls.start(name, lambda name=name: pool.sweep(square, {"x": [1, 2, 3]}, name=name, **options(runs)))
    for result in calls.join().values():
        assert values(result) == [1.0, 4.0, 9.0]


def test_calls_on_one_session_share_its_slots(runs: Path, tmp_path: Path) -> None:
    machine = st.local(slots=2)
    (tmp_path / "hold").touch()
    calls = Calls()
    space = {"x": [1, 2, 3], "folder": [str(tmp_path)]}
    calls.start("first", lambda: st.sweep(held, space, spark=machine, name="first", **options(runs)))
    wait_until((tmp_path / "entered-2").exists, SOON_S, "the first call has all slots")
    calls.start("second", lambda: st.sweep(square, {"x": [1, 2]}, spark=machine, name="second", **options(runs)))
    wait_until(lambda: [shared.calls for shared in SESSION_POOLS._open] == [2], SOON_S, "the second call joins")
    (tmp_path / "hold").unlink()
    results = calls.join()
    assert values(results["first"]) == [1.0, 2.0, 3.0]
    assert values(results["second"]) == [1.0, 4.0]
    assert not SESSION_POOLS._open, "the pool closes with its last call"


def test_a_call_that_joins_brings_the_slots_that_no_call_has(runs: Path, tmp_path: Path) -> None:
    machine = st.local(slots=2)
    (tmp_path / "hold").touch()
    calls = Calls()
    space = {"x": [1, 2], "folder": [str(tmp_path)]}
    calls.start(
        "first",
        lambda: st.sweep(held, space, spark=machine, name="first", max_concurrent_trials=1, **options(runs)),
    )
    wait_until((tmp_path / "entered-1").exists, SOON_S, "the first call has a slot")
    second = st.sweep(square, {"x": [1, 2, 3]}, spark=machine, name="second", **options(runs))
    assert values(second) == [1.0, 4.0, 9.0]
    assert not (tmp_path / "entered-2").exists(), "the first call trains one trial at a time"
    (tmp_path / "hold").unlink()
    assert values(calls.join()["first"]) == [1.0, 2.0]


def test_a_gang_gets_its_agents_beside_a_sweep(pool: st.Pool, runs: Path, tmp_path: Path) -> None:
    calls = Calls()
    calls.start("sweep", lambda: pool.sweep(square, {"x": list(range(10))}, name="sweep", **options(runs)))
    gang = pool.run(
        together, {"folder": str(tmp_path)}, workers=2, backend="none", dir=str(runs), name="gang", progress=False
    )
    assert gang.metrics == {"size": 2.0}
    assert len(values(calls.join()["sweep"])) == 10


def test_a_call_that_fails_costs_the_others_nothing(pool: st.Pool, runs: Path) -> None:
    calls = Calls()
    calls.start("good", lambda: pool.sweep(square, {"x": [1, 2, 3]}, name="good", **options(runs)))
    failed = pool.sweep(failing, {"x": [1, 2, 3, 4]}, name="failing", **options(runs))
    assert {str(trial.status) for trial in failed.trials} <= {"failed", "stopped"}
    assert values(calls.join()["good"]) == [1.0, 4.0, 9.0]


def test_two_calls_of_one_name_are_one_too_many(pool: st.Pool, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    calls = Calls()
    space = {"x": [1], "folder": [str(tmp_path)]}
    calls.start("first", lambda: pool.sweep(held, space, name="same", **options(runs)))
    wait_until((tmp_path / "entered-1").exists, SOON_S, "the first call trains")
    with pytest.raises(st.PoolError, match="the pool is on run 'same': wait for its end, or give this call another"):
        pool.sweep(square, {"x": [1]}, name="same", **options(runs / "elsewhere"))
    (tmp_path / "hold").unlink()
    assert values(calls.join()["first"]) == [1.0]


def test_an_urgent_call_gets_a_slot_and_costs_no_step(pool: st.Pool, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    calls = Calls()
    space = {"x": [1, 2], "folder": [str(tmp_path)]}
    calls.start("patient", lambda: pool.sweep(resumable, space, name="patient", **options(runs)))
    wait_until(lambda: all((tmp_path / f"steps-{x}").exists() for x in (1, 2)), SOON_S, "both slots train")
    urgent = pool.sweep(square, {"x": [3]}, name="urgent", priority=1, **options(runs))
    assert values(urgent) == [9.0]
    (tmp_path / "hold").unlink()
    patient = calls.join()["patient"]
    restarts = [restart for trial in patient.trials for restart in trial.restarts]
    assert [(restart.cause, restart.steps_lost, restart.paused) for restart in restarts] == [
        ("preempted by run urgent", 0, True)
    ]
    for x in (1, 2):
        steps = list(map(int, (tmp_path / f"steps-{x}").read_text().split()))
        assert steps == list(range(1, len(steps) + 1)), "no step is made twice"


def test_ctrl_c_ends_the_call_of_the_main_thread_alone(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    calls = Calls()
    space = {"x": [1], "folder": [str(tmp_path)]}
    with st.pool(st.local(slots=2), preload=["numpy"]) as opened:
        calls.start("other", lambda: opened.sweep(held, space, name="other", **options(runs)))
        wait_until((tmp_path / "entered-1").exists, SOON_S, "the other call trains")
        here = {"x": [2], "folder": [str(tmp_path)]}

        def interrupt() -> None:
            wait_until((tmp_path / "entered-2").exists, SOON_S, "the call of the main thread trains")
            os.kill(os.getpid(), signal.SIGINT)

        calls.start("interrupt", interrupt)
        with pytest.raises(KeyboardInterrupt, match="interrupted"):
            opened.sweep(held, here, name="here", **options(runs))
        (tmp_path / "hold").unlink()
        assert values(calls.join()["other"]) == [1.0]
        again = opened.sweep(square, {"x": [5]}, name="again", **options(runs))
        assert values(again) == [25.0], "the pool has stayed open for the other call"


@ALSO
def test_the_loss_of_an_agent_costs_the_run_that_has_it(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    calls = Calls()
    with st.pool(st.local(slots=2), preload=["numpy"]) as opened:
        for x, name in ((1, "first"), (2, "second")):
            space = {"x": [x], "folder": [str(tmp_path)]}
            calls.start(name, lambda name=name, space=space: opened.sweep(held, space, name=name, **options(runs)))
            wait_until((tmp_path / f"entered-{x}").exists, SOON_S, f"{name} trains")
        coordinator = opened._agents._coordinator
        assert coordinator is not None
        [lost] = [each for each in coordinator._machine.agents.all() if each.member and each.member.run == "second"]
        (tmp_path / "entered-2").unlink()
        call(coordinator._server.drop(lost.id, "the test cuts it off"), 10.0)
        wait_until((tmp_path / "entered-2").exists, SOON_S, "the trial of the second call is restarted")
        (tmp_path / "hold").unlink()
        results = calls.join()
    assert [len(trial.restarts) for trial in results["first"].trials] == [0]
    assert [len(trial.restarts) for trial in results["second"].trials] == [1]
