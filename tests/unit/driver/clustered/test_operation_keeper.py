"""When a coordinator stands in for its client at the Connect server, on a clock that the test moves."""

import logging
from pathlib import Path

import pytest

from sparktrain.config.connect_server import ConnectLimits, ConnectOperation, ConnectServer
from sparktrain.driver.clustered.cluster_launch import send_heartbeats
from sparktrain.driver.clustered.operation_keeper import OperationKeeper
from sparktrain.protocol.connect_calls import ConnectCaller, Touch
from sparktrain.rundir.coordinator_folder import CoordinatorFolder
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.localfs import LocalStore
from tests.unit.clocks import InstantClock

SERVER = ConnectServer(targets=("10.1.2.3:15002",), limits=ConnectLimits(detached_s=100.0))
LIMITS = SERVER.limits
FIRST, SECOND = (ConnectOperation(user="", session="s", operation=name) for name in ("first", "second"))


class NoCaller(ConnectCaller):
    """In place of gRPC: it notes what it touches."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.answers: dict[str, Touch] = {}

    def touch(self, operation: ConnectOperation) -> Touch:
        self.touched.append(operation.operation)
        return self.answers.get(operation.operation, Touch())


class Call:
    """A call with one operation, its client, and the keeper of its coordinator."""

    def __init__(self, folder: Path, *, succeeds: bool = False) -> None:
        self.folder = CoordinatorFolder(LocalStore(str(folder)), RunLayout("run").coordinator("0123456789ab"))
        self.folder.note_operation(FIRST)
        self.caller = NoCaller()
        self.clock = InstantClock()
        self.keeper = OperationKeeper(self.folder, SERVER, succeeds=succeeds, caller=self.caller, clock=self.clock)
        self.heartbeats = 0

    def beat(self) -> None:
        self.heartbeats += 1
        self.folder.client_heartbeat(self.heartbeats)

    def pass_time(self, seconds: float, *, beats: bool) -> None:
        for _ in range(round(seconds / LIMITS.heartbeat_s)):
            if beats:
                self.beat()
            self.clock.at += LIMITS.heartbeat_s
            self.keeper.step()


@pytest.fixture
def call(tmp_path: Path) -> Call:
    return Call(tmp_path)


def test_nothing_is_touched_while_the_client_lives(call: Call) -> None:
    call.pass_time(10 * LIMITS.gone_s, beats=True)
    assert call.caller.touched == []


def test_the_operations_of_a_client_that_is_gone_are_touched_until_it_comes_back(call: Call) -> None:
    call.pass_time(LIMITS.gone_s, beats=True)
    call.folder.note_operation(SECOND)
    call.pass_time(LIMITS.gone_s - LIMITS.heartbeat_s, beats=False)
    assert call.caller.touched == []
    call.pass_time(2 * LIMITS.heartbeat_s, beats=False)
    assert call.caller.touched == ["first", "second"] * 2
    call.pass_time(LIMITS.gone_s, beats=True)
    assert call.caller.touched == ["first", "second"] * 2


def test_an_operation_that_the_server_has_ended_is_left_alone(call: Call) -> None:
    call.folder.note_operation(SECOND)
    call.caller.answers["first"] = Touch(gone=True)
    call.pass_time(LIMITS.gone_s + 2 * LIMITS.heartbeat_s, beats=False)
    assert call.caller.touched == ["first", "second", "second", "second"]


def test_a_successor_touches_at_once(tmp_path: Path) -> None:
    call = Call(tmp_path, succeeds=True)
    call.beat()
    call.keeper.step()
    assert call.caller.touched == ["first"]
    call.pass_time(LIMITS.gone_s, beats=True)
    assert call.caller.touched == ["first"], "the client has shown that it lives"


def test_a_server_that_refuses_is_named_once(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    call.caller.answers["first"] = Touch(problem="UNAUTHENTICATED: no token")
    with caplog.at_level(logging.WARNING, "sparktrain"):
        call.pass_time(3 * LIMITS.gone_s, beats=False)
    [text] = [record.getMessage() for record in caplog.records]
    assert "at 10.1.2.3:15002 does not let this process stand in for the client: UNAUTHENTICATED: no token" in text
    assert "it ends the run 220 s after the client has left" in text


def test_a_client_sends_heartbeats_until_its_agents_have_left(call: Call) -> None:
    ends = iter([False, False, True])
    pauses = []
    send_heartbeats(call.folder, lambda seconds: pauses.append(seconds) or next(ends), 4.0)
    assert pauses == [4.0] * 3
    trace = call.folder.client_trace()
    assert (trace.heartbeats, trace.operations) == (3, {FIRST})
