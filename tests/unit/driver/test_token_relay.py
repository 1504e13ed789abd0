"""Agents have the newest tokens before they are asked for anything: those that are there, and those that join."""

import asyncio
from typing import Any

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, RunId
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.agent_server import Server
from sparktrain.driver.prepare import checked_call
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.messages import Tokens
from sparktrain.protocol.transport import Link
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.token_storage import merged
from tests.support.run_stages import in_store
from tests.unit.driver.drivers import Driver, World, prepared
from tests.unit.driver.drivers import play as played

RUN = RunId("run")
ONE_CLUSTER = b"HDTS\x00\x01\x01a\x01i\x01p\x01k\x01s\x00"
"""A token file with one token, by the name `a`."""
OTHER_CLUSTER = b"HDTS\x00\x01\x01b\x01i\x01p\x01k\x01s\x00"


async def joined(transport: MemoryTransport, name: str) -> Link:
    link = await transport.dialer(name).attend(1.0)
    link.post(m.Join(agent=AgentId(name), slot=0, host="host", pid=0, versions={}))
    assert isinstance(await link.receive(), m.Welcome)
    return link


async def play() -> list[m.Message]:
    transport = MemoryTransport()
    server = Server(transport.listener, SystemClock(), {}, ())

    async def refuse(header: object, chunks: object) -> m.UploadDone:
        raise AssertionError

    await server.open(lambda event: None, lambda agent, member, problem: None, refuse)
    early = await joined(transport, "early")
    for content in (b"first", b"second"):
        server.hand_out(RUN, Tokens(content))
    late = await joined(transport, "late")
    seen = [await early.receive(), await early.receive(), await late.receive()]
    # Another run has its store on another cluster.
    server.hand_out(RUN, Tokens(ONE_CLUSTER))
    server.hand_out(RunId("other"), Tokens(OTHER_CLUSTER))
    seen += [await early.receive(), await early.receive()]
    server.forget_tokens(RUN)
    latest = await joined(transport, "latest")
    seen.append(await latest.receive())
    await server.close()
    return seen


def test_all_agents_get_them_and_later_ones_the_newest_of_each_run() -> None:
    assert asyncio.run(asyncio.wait_for(play(), 10.0)) == [
        Tokens(b"first"),
        Tokens(b"second"),
        Tokens(b"second"),
        Tokens(ONE_CLUSTER),
        Tokens(merged([ONE_CLUSTER, OTHER_CLUSTER])),
        Tokens(OTHER_CLUSTER),
    ]


class Renewed:
    """Tokens that are due three times."""

    def __init__(self) -> None:
        self.renewed = 0

    @property
    def tokens(self) -> Tokens:
        return Tokens(str(self.renewed).encode())

    @property
    def is_due(self) -> bool:
        return self.renewed < 3

    def renew(self) -> bool:
        self.renewed += 1
        return True


def test_a_run_hands_them_out_before_it_begins_and_whenever_there_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    hand_out, start = Server.hand_out, World.start
    monkeypatch.setattr(Server, "hand_out", lambda self, *tokens: (order.append("tokens"), hand_out(self, *tokens)))
    monkeypatch.setattr(World, "start", lambda self, member: (order.append("start"), start(self, member)))
    keeper: Any = Renewed()
    driver = Driver(World(), prepared(5), lambda name, effect: effect(), tokens=keeper)
    played(driver.run())
    assert order[0] == "tokens"
    assert order.count("start") == 5
    assert order.count("tokens") == keeper.renewed + 1 > 1


@pytest.mark.parametrize(
    ("authentication", "ticket", "needed"),
    [("simple", False, False), ("kerberos", True, False), ("kerberos", False, True)],
)
def test_a_run_directory_is_looked_at_before_there_is_a_session_where_that_can_be(
    authentication: str, ticket: bool, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HdfsStore(StoreAddress("hdfs://a:1/runs", {"hadoop.security.authentication": authentication}))
    monkeypatch.setattr(checked_call, "has_ticket", lambda: ticket)
    assert in_store(prepared(5), store).needs_session is needed
