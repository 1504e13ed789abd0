"""Members of a ring that move to other agents while something else happens to their gang."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from tests.faults.moving import GO, HOLD, move
from tests.faults.test_draining import agent_of

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.all(
        case="two drained members at once, and a loss, a failure or a cancelled drain while a process is prepared",
        covered_by="one drained member of a ring; `unit/state/test_handovers`",
    ),
]

SOON_S = 120.0


@pytest.fixture(scope="module")
def four() -> Iterator[st.Pool]:
    """Two agents more than the gang takes."""
    with st.pool(st.local(slots=4), preload=["tensorflow", "keras", "horovod.tensorflow"]) as opened:
        yield opened


class Moving:
    """A gang of two that trains until the test ends it."""

    def __init__(self, pool: st.Pool, folder: Path) -> None:
        self.pool = pool
        self.folder = folder
        self.directory = str(folder / "runs" / "moving")
        self.drained: list[int] = []
        """The numbers of the agents that were drained last."""
        self.problem: BaseException | None = None

    def trained(self, act: Callable[["Moving"], None]) -> st.RunResult:
        """The result, where a thread calls `act` once both members have made some steps."""

        def run() -> None:
            try:
                self.until(lambda: all(len(self.steps(rank)) > 10 for rank in (0, 1)), "both members train")
                act(self)
            except BaseException as error:
                self.problem = error
            finally:
                for hold in self.folder.glob(f"{HOLD}-*"):
                    hold.unlink()
                (self.folder / GO).touch()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            result = self.pool.run(
                move, {"folder": str(self.folder)}, workers=2, backend="horovod", dir=str(self.folder / "runs"),
                name="moving", max_retries=1, progress=False,
            )  # fmt: skip
        finally:
            thread.join(SOON_S)
        assert self.problem is None, self.problem
        return result

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds."""
        deadline = time.monotonic() + SOON_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {SOON_S:g} s: {what}"
            time.sleep(0.05)

    def steps(self, rank: int) -> list[int]:
        """The steps that the member has made so far, in all of its processes."""
        path = self.folder / f"steps-{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def processes(self, rank: int) -> list[int]:
        """The ids of the processes of the member so far, the oldest first."""
        paths = sorted(self.folder.glob(f"process-{rank}-*"), key=lambda path: path.stat().st_mtime_ns)
        return [int(path.name.rpartition("-")[2]) for path in paths]

    def drain(self, *ranks: int) -> None:
        """Drain the agents that have these members now."""
        self.drained = [agent_of(self.pool, 0, rank).slot for rank in ranks]
        for slot in self.drained:
            drain(run_in(self.directory), None, slot)

    def cancel(self) -> None:
        """Drain these agents no longer."""
        for slot in self.drained:
            drain(run_in(self.directory), None, slot, cancels=True)

    def prepare(self, rank: int) -> int:
        """Drain the agent of the member; the id of its next process, which waits in its function."""
        (self.folder / f"{HOLD}-{rank}").touch()
        self.drain(rank)
        self.until(lambda: len(self.processes(rank)) == 2, "the next process has entered its function")
        return self.processes(rank)[1]

    def proceed(self, rank: int) -> None:
        """Let the next processes of the member continue."""
        (self.folder / f"{HOLD}-{rank}").unlink()

    def await_restarts(self, count: int) -> None:
        """Wait until a reader of the run directory sees as many, and then until both members train on."""
        self.until(lambda: len(restarts_of(self.directory)) == count, f"{count} restarts")
        before = [len(self.steps(rank)) for rank in (0, 1)]
        self.until(lambda: all(len(self.steps(rank)) > before[rank] + 10 for rank in (0, 1)), "both members train on")

    def check_steps(self, killed: int | None = None) -> None:
        """No member has lost a step or made one twice, and both have ended with equal weights.

        The next process of one that was killed calls the callbacks of its last step too.
        """
        for rank in (0, 1):
            steps = self.steps(rank)
            steps = sorted(set(steps)) if rank == killed else steps
            assert steps == list(range(1, len(steps) + 1)), f"rank {rank}: none twice, none lost"
        weights = [np.load(self.folder / f"weights-{rank}.npy").tobytes() for rank in (0, 1)]
        assert weights[0] == weights[1]


@pytest.fixture
def moving(four: st.Pool, tmp_path: Path) -> Moving:
    return Moving(four, tmp_path)


def restarts_of(directory: str) -> tuple[st.Restart, ...]:
    """The restarts that a reader of the run directory sees."""
    return Observer(run_in(directory), SystemClock()).look().trials[0].result.restarts


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_members_leave_their_agents_at_once(moving: Moving) -> None:
    def act(gang: Moving) -> None:
        gang.drain(0, 1)
        gang.await_restarts(2)

    result = moving.trained(act)
    moves = [(restart.rank, restart.drained, restart.healed, restart.steps_lost) for restart in result.restarts]
    assert sorted(moves) == [(0, True, True, 0), (1, True, True, 0)], [restart.cause for restart in result.restarts]
    assert [len(moving.processes(rank)) for rank in (0, 1)] == [2, 2]
    moving.check_steps()


def test_the_other_member_is_lost_while_a_process_is_prepared(moving: Moving) -> None:
    def act(gang: Moving) -> None:
        prepared = gang.prepare(1)
        os.kill(gang.processes(0)[0], signal.SIGKILL)
        gang.until(lambda: not is_alive(prepared), "the prepared process ends")
        gang.proceed(1)
        gang.await_restarts(2)

    result = moving.trained(act)
    assert [(restart.rank, restart.drained, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (0, False, True, 0),
        (1, True, True, 0),
    ], [restart.cause for restart in result.restarts]
    assert [len(moving.processes(rank)) for rank in (0, 1)] == [2, 3]
    moving.check_steps(killed=0)


def test_the_drained_member_is_lost_while_its_process_is_prepared(moving: Moving) -> None:
    def act(gang: Moving) -> None:
        prepared = gang.prepare(1)
        os.kill(gang.processes(1)[0], signal.SIGKILL)
        gang.until(lambda: not is_alive(prepared), "the prepared process ends")
        gang.proceed(1)
        gang.await_restarts(1)

    result = moving.trained(act)
    [restart] = result.restarts
    assert (restart.rank, restart.drained, restart.healed, restart.steps_lost) == (1, False, True, 0), restart.cause
    assert [len(moving.processes(rank)) for rank in (0, 1)] == [1, 3]
    moving.check_steps(killed=1)


def test_the_prepared_process_dies(moving: Moving) -> None:
    def act(gang: Moving) -> None:
        os.kill(gang.prepare(1), signal.SIGKILL)
        gang.proceed(1)
        gang.await_restarts(1)

    result = moving.trained(act)
    [restart] = result.restarts
    assert (restart.drained, restart.healed, restart.steps_lost) == (True, False, 0), restart.cause
    assert [len(moving.processes(rank)) for rank in (0, 1)] == [2, 3]
    moving.check_steps()


def test_a_drain_is_cancelled_while_a_process_is_prepared(moving: Moving) -> None:
    def act(gang: Moving) -> None:
        prepared = gang.prepare(1)
        gang.cancel()
        gang.until(lambda: not is_alive(prepared), "the prepared process ends")
        before = len(gang.steps(1))
        gang.until(lambda: len(gang.steps(1)) > before + 10, "the member trains on")

    result = moving.trained(act)
    assert not result.restarts
    assert [len(moving.processes(rank)) for rank in (0, 1)] == [1, 2]
    moving.check_steps()
