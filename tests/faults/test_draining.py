"""Agents that are drained while real members train on them."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.base.clock import SystemClock
from sparktrain.config.option_catalog import BackendName
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from sparktrain.state.agents import AgentState
from sparktrain.state.outcome import Restart
from tests.faults.leaving import GO, leave
from tests.support.fits import FITS, HOROVOD, JAX, Fit

pytestmark = pytest.mark.timeout(240)
STARTED_S = 200.0
"""A guard against a test that hangs, and shorter than its own limit: on a busy machine a gang takes long to start."""
OTHERS = pytest.mark.all(
    case="the chief on an agent that is drained, and a gang with a ring that cannot heal",
    covered_by="rank 1 of a ring that heals; `unit/state/test_draining`, `unit/state/test_handovers`",
)


def beside(folder: Path, drains: Callable[[], None]) -> threading.Thread:
    """Once each training has made some steps, a thread drains."""

    def wait() -> None:
        started(folder)
        drains()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def started(folder: Path) -> None:
    """Wait until both members have made some steps."""
    deadline = time.monotonic() + STARTED_S
    pause = threading.Event()
    while time.monotonic() < deadline:
        files = list(folder.glob("*.jsonl"))
        if len(files) == 2 and all(path.read_text().count("\n") > 60 for path in files):
            return
        pause.wait(0.1)
    raise AssertionError(f"the members have not made 60 steps within {STARTED_S:g} s")


def agent_of(pool: st.Pool, trial: int, rank: int) -> AgentState:
    """The agent that has a member."""
    coordinator = pool._agents._coordinator
    assert coordinator is not None
    agents = coordinator._machine.agents.all()
    return next(agent for agent in agents if agent.member and (agent.member.trial, agent.member.rank) == (trial, rank))


def steps_of(folder: Path, member: str) -> list[list[float]]:
    return [json.loads(line) for line in (folder / f"{member}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("fit", "backend", "rank"),
    [
        (FITS[HOROVOD], "horovod", 1),
        pytest.param(FITS[HOROVOD], "horovod", 0, marks=OTHERS),
        pytest.param(FITS[HOROVOD], "tensorflow", 1, marks=OTHERS),
        pytest.param(FITS[JAX], "jax", 1, marks=OTHERS),
    ],
    indirect=["fit"],
    ids=lambda value: getattr(value, "name", None),
    scope="module",
)
def test_a_gang_leaves_a_drained_agent_without_a_repeated_step(
    three: st.Pool, fit: Fit, tmp_path: Path, capfd: pytest.CaptureFixture[str], backend: BackendName, rank: int
) -> None:
    codes: list[int] = []
    slots: list[int] = []

    def drains() -> None:
        slots.append(agent_of(three, 0, rank).slot)
        codes.append(cli.main(["drain", str(tmp_path / "runs" / "moved"), "--agent", "9"]))
        codes.append(cli.main(["drain", str(tmp_path / "runs" / "moved"), "--agent", str(slots[0])]))
        slots.append(-1)

    thread = beside(tmp_path, drains)
    result = three.run(
        leave, {"folder": str(tmp_path)}, workers=2, backend=backend, dir=str(tmp_path / "runs"), name="moved",
        max_retries=0, progress=False, env=dict(fit.env),
    )  # fmt: skip
    thread.join(60)
    assert codes == [2, 0]
    assert "the run has no agent 9: its agents are 0 on " in capfd.readouterr().err
    [restart] = result.restarts
    heals = backend != "tensorflow"
    assert (restart.cause, restart.steps_lost, restart.drained, restart.healed) == ("drained", 0, True, heals)
    assert restart.rank == rank
    generations = [1] if heals else [1, 2]
    for member in (0, 1):
        steps = [step for generation in generations for _, step in steps_of(tmp_path, f"0-{generation}-{member}")]
        assert steps == list(range(1, len(steps) + 1)), "none twice, none lost"
        processes = len(list(tmp_path.glob(f"0-{member}-process-*")))
        assert processes == (2 if member == rank or not heals else 1), "the other one keeps its process"
    assert cli.main(["status", str(tmp_path / "runs" / "moved")]) == 0
    output = capfd.readouterr().out
    assert f"rank {rank} moved from {restart.host}: drained; " in output
    assert "no step repeated" in output
    assert cli.main(["fsck", str(tmp_path / "runs" / "moved")]) == 0


@pytest.mark.all(
    case="a trial of a sweep on an agent that is drained",
    covered_by="a gang; `unit/state/test_draining`, `histories/test_draining`",
)
def test_a_trial_continues_on_another_agent_from_the_step_at_which_it_is_asked(tmp_path: Path) -> None:
    directory = str(tmp_path / "runs" / "swept")
    codes: list[int] = []
    options: dict[str, Any] = {"dir": str(tmp_path / "runs"), "name": "swept", "max_retries": 0, "progress": False}
    with st.pool(st.local(slots=2), preload=["tensorflow", "keras"]) as pool:

        def drains() -> None:
            codes.append(cli.main(["drain", directory, "--agent", str(agent_of(pool, 0, 0).slot)]))
            (tmp_path / GO).touch()

        thread = beside(tmp_path, drains)
        result = pool.sweep(leave, {"number": [0, 1], "folder": [str(tmp_path)]}, metric="steps", mode="max", **options)
        thread.join(60)
    assert codes == [0]
    moved, other = result.trials
    [restart] = moved.restarts
    assert (restart.drained, restart.steps_lost, other.restarts) == (True, 0, ())
    steps = [step for generation in (1, 2) for _, step in steps_of(tmp_path, f"0-{generation}-0")]
    assert steps == list(range(1, len(steps) + 1)), "it paused after the checkpoint"
    assert moved.metrics["steps"] == len(steps)


@pytest.mark.all(
    case="a gang with all members on drained agents, and a drain that is cancelled",
    covered_by="`unit/state/test_draining`; a gang that leaves one agent",
)
def test_a_gang_on_drained_agents_alone_saves_at_once_and_continues_once_that_is_cancelled(
    three: st.Pool, tmp_path: Path
) -> None:
    directory = str(tmp_path / "runs" / "all")
    host = socket.gethostname()
    codes: list[int] = []

    def drains() -> None:
        codes.append(cli.main(["drain", directory, "--host", host]))
        deadline = time.monotonic() + STARTED_S
        while time.monotonic() < deadline and not restarts_of(directory):
            threading.Event().wait(0.1)
        codes.append(cli.main(["drain", directory, "--host", host, "--cancel"]))

    thread = beside(tmp_path, drains)
    result = three.run(
        leave, {"folder": str(tmp_path)}, workers=2, backend="horovod", dir=str(tmp_path / "runs"), name="all",
        max_retries=0, progress=False,
    )  # fmt: skip
    thread.join(60)
    assert codes == [0, 0]
    [restart] = result.restarts
    assert (restart.drained, restart.steps_lost) == (True, 0)
    for rank in (0, 1):
        steps = [step for generation in (1, 2) for _, step in steps_of(tmp_path, f"0-{generation}-{rank}")]
        assert steps == list(range(1, len(steps) + 1)), "none twice, none lost"


def restarts_of(directory: str) -> tuple[Restart, ...]:
    """The restarts that a reader of the run directory sees."""
    return Observer(run_in(directory), SystemClock()).look().trials[0].result.restarts
