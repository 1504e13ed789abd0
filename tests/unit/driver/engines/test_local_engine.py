"""What this machine offers a run: slots, cores, GPUs and tickets, each refused or printed in one sentence."""

import os
import re
import sys
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain.cluster.executor_loss import explain_failure
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.engines import local_engine
from sparktrain.driver.engines.local_batch import MOST_SHORT_LIVES, SHORT_LIFE_S, Restarts
from sparktrain.driver.engines.local_engine import LocalEngine, local, share_out
from sparktrain.driver.engines.selection import engine_of
from sparktrain.errors import ResourceError, SessionError, SpecError
from sparktrain.state.outcome import Loss
from sparktrain.store.hadoop.token_file import VARIABLE as TOKENS
from sparktrain.training.own_devices import COMMAND, VARIABLE, gpus_here

KERBEROS = StoreAddress("hdfs://nn/runs", {"hadoop.security.authentication": "kerberos"})


def spec(workers: int = 1, gpus: int = 0) -> SweepSpec:
    return SweepSpec(name="r", gang=GangSpec(workers=workers, backend=Backend.NONE), gpus=gpus)


def engine(slots: int = 2, cores: int = 2, gpus: tuple[str, ...] = ()) -> LocalEngine:
    return LocalEngine(local(slots), cores, gpus)


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, "2"])
def test_slots_are_a_whole_number(slots: object) -> None:
    with pytest.raises(SpecError, match="slots"):
        st.local(slots)  # type: ignore[arg-type] # that is the point


def test_the_machine_of_a_call_is_its_engine_and_calls_on_one_machine_share_its_slots() -> None:
    machine = st.local(slots=3)
    first, second = engine_of(machine), engine_of(machine)
    assert first.slots == 3
    assert first.holder is second.holder is not engine_of(st.local(slots=3)).holder


@pytest.mark.parametrize(
    ("workers", "wanted", "trials", "agents"),
    [(1, None, None, 4), (1, None, 2, 2), (2, None, 8, 4), (3, None, 8, 3), (2, 4, 1, 4)],
)
def test_whole_gangs_get_the_slots_that_they_have_use_for(
    workers: int, wanted: int | None, trials: int | None, agents: int
) -> None:
    assert engine(4).agents_for(spec(workers), wanted, trials) == (agents, 0)


@pytest.mark.parametrize(
    ("workers", "wanted", "problem"),
    [
        (3, None, r"the gang has 3 members and local\(\) has 2 slots: .* local\(slots=3\) \(--slots 3\)"),
        (1, 5, r"agents \(5\) exceeds the 2 slots of local\(\): lower it, or use local\(slots=5\)"),
        (2, 1, r"agents \(1\) is below the 2 members"),
    ],
)
def test_too_few_slots_or_agents_are_refused(workers: int, wanted: int | None, problem: str) -> None:
    with pytest.raises(ResourceError, match=problem):
        engine().agents_for(spec(workers), wanted, None)


def test_more_slots_than_cores_are_said() -> None:
    assert "4 slots on this machine" in engine(4, cores=2).notes[0]
    assert "which has 2 cores: trials slow each other down; --slots 2 avoids that" in engine(4, cores=2).notes[0]
    assert "slow" not in engine(2, cores=2).notes[0]


def test_gpus_are_shared_out_and_none_is_in_two_slots() -> None:
    assert share_out(("0", "1", "2", "3"), 2) == (("0", "1"), ("2", "3"))
    assert share_out(("0", "1", "2"), 2) == (("0", "1"), ("2",))
    assert share_out(("0",), 3) == (("0",), (), ())


@pytest.mark.parametrize(
    ("slots", "gpus", "wanted", "problem"),
    [
        (2, (), 1, r"gpus \(1\) exceeds the 0 GPUs of this machine: lower it, or use a cluster"),
        (1, ("0", "1"), 3, r"gpus \(3\) exceeds the 2 GPUs of this machine"),
        (4, ("0", "1"), 1, r"gpus \(1\) is more than each of 4 slots .* of the 2 GPUs .* use local\(slots=2\)"),
    ],
)
def test_more_gpus_than_there_are_are_refused(slots: int, gpus: tuple[str, ...], wanted: int, problem: str) -> None:
    with pytest.raises(ResourceError, match=problem):
        engine(slots, gpus=gpus).check_run(spec(gpus=wanted))


def test_as_many_gpus_as_each_slot_has_will_do() -> None:
    engine(2, gpus=("0", "1")).check_run(spec(gpus=1))


def test_nvidia_smi_lists_the_gpus_unless_the_environment_names_them(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == {list(COMMAND[1:])!r}\nprint('0\\n1')\n")
    fake.chmod(0o755)
    command = (str(fake), *COMMAND[1:])
    assert gpus_here({}, command) == ("0", "1")
    assert gpus_here({VARIABLE: "1"}, command) == ("1",)
    assert gpus_here({VARIABLE: "GPU-a, GPU-b,-1,2"}, command) == ("GPU-a", "GPU-b")
    assert gpus_here({VARIABLE: ""}, command) == ()
    fake.write_text("#!/bin/sh\nexit 9\n")
    assert gpus_here({}, command) == ()
    assert gpus_here({}, (str(tmp_path / "none"),)) == ()


def test_a_store_with_kerberos_needs_a_ticket_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKENS, raising=False)
    monkeypatch.setattr(local_engine, "has_ticket", lambda: False)
    with pytest.raises(SessionError, match=r"hdfs://nn/runs wants Kerberos, .* run kinit; only a Spark session"):
        engine().tokens(KERBEROS)
    assert engine().tokens(StoreAddress("/runs")) is None
    monkeypatch.setattr(local_engine, "has_ticket", lambda: True)
    assert engine().tokens(KERBEROS) is None


def test_a_token_file_does_in_place_of_a_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "has_ticket", lambda: False)
    monkeypatch.setitem(os.environ, TOKENS, "/run/tokens")
    assert engine().tokens(KERBEROS) is None


def test_a_lost_agent_starts_again_at_once_and_one_that_cannot_live_is_given_up() -> None:
    restarts, now, pauses = Restarts(), 100.0, list[float]()
    restarts.started(0, now)
    while restarts.lost(0, now):
        pauses.append(restarts.wait_s(now) or 0.0)
        assert restarts.due(now) == ([0] if pauses[-1] == 0 else [])
        now += pauses[-1]
        assert restarts.due(now) == [0]
        restarts.started(0, now)
        assert restarts.due(now) == []
    assert pauses == [0, 0.25, 0.5, 1, 2, 4, 8]
    assert len(pauses) == MOST_SHORT_LIVES - 1


def test_an_agent_that_has_lived_counts_from_the_start_again() -> None:
    restarts, now = Restarts(), 0.0
    for _ in range(2 * MOST_SHORT_LIVES):
        restarts.started(0, now)
        now += SHORT_LIFE_S
        assert restarts.lost(0, now)
        assert restarts.wait_s(now) == 0.0
    assert restarts.wait_s(now) is not None
    restarts.started(0, now)
    assert restarts.wait_s(now) is None


@pytest.mark.parametrize(
    ("exit_text", "explained"),
    [
        ("local agent was ended by SIGKILL", "by SIGKILL: most likely this machine is out of memory, .* fewer slots"),
        (
            "local agent was ended by SIGKILL from outside of sparktrain, and not for lack of memory",
            "^its process was ended by SIGKILL from outside of sparktrain, and not for lack of memory$",
        ),
        ("local agent was ended by SIGSEGV", "^its process was ended by SIGSEGV$"),
        ("local agent exited with code 1 (OSError: full)", r"^its process exited with code 1 \(OSError: full\)$"),
    ],
)
def test_the_end_of_a_process_explains_the_loss_of_its_agent(exit_text: str, explained: str) -> None:
    loss, line = explain_failure(exit_text)
    assert loss is Loss.OTHER
    assert not loss.excused, "a trial that kills agents is lost in the end"
    assert re.search(explained, line)
