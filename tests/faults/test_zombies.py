"""An agent that was suspended, replaced and continued can neither commit nor delete nor report anything."""

import os
import re
import signal
import threading
from pathlib import Path

import msgspec
import pytest

import sparktrain as st
from sparktrain.driver import agent_server, coordinator
from tests.support import drill
from tests.support.drill import Strike
from tests.support.processes import wait_until

LEASE_S = 8.0
"""Half of the usual one, after which a suspended agent is replaced."""


def test_a_replaced_chief_that_continues_changes_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (agent_server, coordinator):
        monkeypatch.setattr(module, "LEASE_S", LEASE_S)
    folder = runs / "notes"
    folder.mkdir(parents=True)
    strike = Strike(1, 25, 0, "agent", signal.SIGSTOP)
    continued = threading.Thread(target=continue_when_replaced, args=(folder,))
    continued.start()
    params = {"folder": str(folder), "strikes": [msgspec.to_builtins(strike)]}
    result = st.run(
        drill.train, params, workers=2, agents=3, spark=st.local(slots=3), backend="none", dir=str(runs), name="zombie",
        preload=["numpy"], progress=False,
    )  # fmt: skip
    continued.join(30)
    assert result.metrics == {"value": drill.expected()}
    [restart] = result.restarts
    assert restart.kind == "lost"
    assert drill.notes(folder, "from")[2, 0] == [restart.resumed_from_step or 0]
    written = re.findall(r"gen-(\d+)/manifest-(\d+)", " ".join(map(str, runs.rglob("manifest-*"))))
    newest = [(int(generation), int(step)) for generation, step in written]
    assert (2, drill.STEPS) in newest
    assert all("generation-2" in member.log for member in result.members)


def continue_when_replaced(folder: Path) -> None:
    """Continue the suspended agent once the second generation trains."""
    wait_until(lambda: list(folder.glob("2.0.step-*")), 90.0, "the second generation trains")
    [noted] = folder.glob("1.0.victim-*")
    os.kill(int(noted.name.rpartition("-")[2]), signal.SIGCONT)
