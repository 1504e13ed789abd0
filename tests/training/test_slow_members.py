"""A gang with a slow member: the run names it, and a trace shows the steps of all ranks."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.config.option_catalog import BackendName
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from sparktrain.state.gangs.step_times import SlowCause
from tests.support.processes import wait_until
from tests.training import step_programs
from tests.training.step_programs import SLOWER_S, STEPS

ON_TENSORFLOW = pytest.mark.all(case="a slow member of TensorFlow's ring", covered_by="one of Horovod's ring")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def torch_pool() -> Iterator[st.Pool]:
    """Two agents on this machine, for Keras on PyTorch."""
    with st.pool(st.local(slots=2), preload=["torch"]) as pool:
        yield pool


@pytest.mark.parametrize(
    ("backend", "pool", "env"),
    [
        ("horovod", "gang_pool", {}),
        pytest.param("tensorflow", "gang_pool", {}, marks=ON_TENSORFLOW),
        pytest.param("torch", "torch_pool", {"KERAS_BACKEND": "torch"}, marks=pytest.mark.torch),
    ],
)
def test_a_member_that_sleeps_in_each_step_is_named_and_traced(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    backend: BackendName,
    pool: str,
    env: dict[str, str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs = str(tmp_path / "runs")
    gang: dict[str, Any] = {"workers": 2, "backend": backend, "env": env, "dir": runs, "name": "slow"}
    request.getfixturevalue(pool).run(step_programs.train, progress=False, **gang)
    [trial] = Observer(run_in(f"{runs}/slow"), SystemClock()).look().trials
    times = trial.step_times
    assert times is not None
    assert times.slow is not None
    assert (times.slow.rank, times.slow.cause) == (1, SlowCause.COMPUTE)
    waits = [of.wait_s for of in times.members]
    assert waits[0] - waits[1] > SLOWER_S / 2
    assert cli.main(["status", f"{runs}/slow"]) == 0
    assert "rank 1 on " in (shown := capfd.readouterr().out)
    assert "it computes longer" in shown
    assert cli.main(["trace", f"{runs}/slow", "--last", "10", "-o", str(tmp_path / "trace.json")]) == 0
    events = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    steps = {(event["pid"], event["name"]) for event in events if event["tid"] == 0}
    assert steps == {(rank, f"step {number}") for rank in (0, 1) for number in range(STEPS - 9, STEPS + 1)}
    calls = [event for event in events if event["tid"] == 1]
    ends = [[event["ts"] + event["dur"] for event in calls if event["pid"] == rank] for rank in (0, 1)]
    assert len(ends[0]) == len(ends[1]) >= 9
    apart = [abs(one - other) for one, other in zip(*ends, strict=True)]
    assert median(apart) < 1e6 * SLOWER_S / 2


@pytest.mark.all(case="a member of TensorFlow that waits for its data", covered_by="one that sleeps in each step")
def test_a_member_that_waits_for_its_batches_is_named_with_that_cause(gang_pool: st.Pool, tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    options = {"workers": 2, "backend": "tensorflow", "dir": runs, "name": "slow", "progress": False}
    gang_pool.run(step_programs.train, {"by_data": True}, **options)
    [trial] = Observer(run_in(f"{runs}/slow"), SystemClock()).look().trials
    assert trial.step_times is not None
    assert trial.step_times.slow is not None
    assert (trial.step_times.slow.rank, trial.step_times.slow.cause) == (1, SlowCause.DATA)
    waits = [of.data_s for of in trial.step_times.members]
    assert waits[1] - waits[0] > SLOWER_S / 2


@pytest.mark.all(case="a trace of members that train, and of one that is killed", covered_by="one of a gang that ended")
def test_members_that_train_are_traced_and_so_is_one_that_is_killed(
    gang_pool: st.Pool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def traced() -> set[tuple[int, str]]:
        target = tmp_path / "trace.json"
        if cli.main(["trace", f"{tmp_path}/runs/killed", "--last", "5", "-o", str(target)]):
            return set()
        events = json.loads(target.read_text())["traceEvents"]
        return {(event["pid"], event["name"]) for event in events if event["ph"] == "X" and event["tid"] == 0}

    def run() -> None:
        options = {"workers": 2, "backend": "tensorflow", "dir": str(tmp_path / "runs"), "name": "killed"}
        with pytest.raises(st.RunFailedError, match="SIGKILL"):
            gang_pool.run(step_programs.train_on, {"folder": str(tmp_path)}, max_retries=0, progress=False, **options)

    training = spawn(run)
    wait_until(lambda: {rank for rank, _ in traced()} == {0, 1}, 60, "a trace of both members")
    (tmp_path / "seen").touch()
    training.join(60)
    assert not training.is_alive()
    steps = traced()
    for rank in (0, 1):
        assert {name for member, name in steps if member == rank} == {name for member, name in steps if not member}
    capfd.readouterr()
