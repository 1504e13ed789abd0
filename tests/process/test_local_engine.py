"""The engine of this machine: the contract, and the end of agents after the loss of their nursery or driver."""

import os
import signal
import threading
from itertools import count
from pathlib import Path

import pytest

from sparktrain.driver.engines.engine import JobEnd
from sparktrain.driver.engines.local_batch import AgentPlace, LocalBatch, Restarts
from sparktrain.driver.engines.local_engine import LocalEngine, local
from tests.support.engine_contract import END_S, EngineContract, Reception
from tests.support.processes import Sighted, descendants, wait_until


def nurseries() -> list[int]:
    return [each.pid for each in descendants(os.getpid(), "sparktrain.executor.nursery") if each.ppid() == os.getpid()]


class TestContract(EngineContract):
    @pytest.fixture
    def engine(self) -> LocalEngine:
        return LocalEngine(local(slots=2))

    def test_agents_of_a_killed_nursery_end_and_the_batch_reports_the_cause(
        self, reception: Reception, start, ends: list[JobEnd]
    ) -> None:
        batch = start(range(2))
        agents = Sighted(each.pid for each in reception.wait(2))
        [nursery] = nurseries()
        below = Sighted(each.pid for each in descendants(nursery))
        os.kill(nursery, signal.SIGKILL)
        assert batch.join(END_S)
        assert ends[0].error == "the process that starts them was ended by SIGKILL"
        agents.wait_gone(END_S)
        below.wait_gone(END_S)

    def test_a_suspended_agent_is_ended_too(self, reception: Reception, start, ends: list[JobEnd]) -> None:
        batch = start(range(2))
        joins = reception.wait(2)
        everything = Sighted(each.pid for pid in nurseries() for each in descendants(pid))
        os.kill(joins[0].pid, signal.SIGSTOP)
        batch.cancel()
        everything.wait_gone(END_S)
        assert batch.join(END_S)
        assert not everything.alive()

    def test_agents_that_end_at_once_end_the_batch_with_their_last_output(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reception: Reception, ends: list[JobEnd]
    ) -> None:
        (tmp_path / "sitecustomize.py").write_text(
            "import os\n"
            "def end():\n    os.write(2, b'the disk is full\\n')\n    os._exit(7)\n"
            "os.register_at_fork(after_in_child=end)\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        losses: dict[int, str] = {}
        places = {slot: AgentPlace(1, None) for slot in range(2)}
        batch = LocalBatch(
            reception.ticket, places, ends.append, losses, count(),
            restarts=Restarts(most_short_lives=2),
        )  # fmt: skip
        batch.start()
        assert batch.join(END_S)
        assert "local agent exited with code 7 (the disk is full), again and again" in (ends[0].error or "")
        assert set(losses.values()) == {"local agent exited with code 7 (the disk is full)"}

    def test_a_batch_outlives_the_thread_that_started_it(self, reception: Reception, start) -> None:
        started = []
        thread = threading.Thread(target=lambda: started.append(start(range(1))))
        thread.start()
        thread.join()
        agent = Sighted(each.pid for each in reception.wait(1))
        reception.dismiss(0)
        wait_until(lambda: started[0].vacant() == {0}, END_S, "the slot is vacant")
        agent.wait_gone(END_S)
        assert not agent.alive()
