"""When delegation tokens are fetched, which process uses them, and the warnings of their end."""

import logging
import os
import re
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.delegation_tokens import Fetched
from sparktrain.cluster.kerberos_ticket import Ticket
from sparktrain.cluster.token_renewer import Countdown, TokenKeeper, tokens_for, wait_s, wants_tokens
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import StoreError
from sparktrain.protocol.messages import Tokens
from sparktrain.store.hadoop.token_file import VARIABLE, TokenFile

KERBEROS = StoreAddress("hdfs://a:1/runs", {"hadoop.security.authentication": "kerberos"})


class ByHand(SystemClock):
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


class World:
    """The source of tokens, and the keeper of a run that fetches from it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ByHand()
        self.held: Ticket | None = Ticket("ann@REALM", 36000.0)
        self.next: Fetched | StoreError = Fetched(b"first", 3600.0, True)
        self.own = TokenFile(folder)
        self.keeper = TokenKeeper(self.fetch, self.own, self.clock, lambda: self.held)

    def fetch(self) -> Fetched:
        if isinstance(self.next, StoreError):
            raise self.next
        return self.next

    def after(self, seconds: float) -> "World":
        self.clock.at += seconds
        if self.held is not None:
            self.held = Ticket(self.held.principal, self.held.left_s - seconds)
        return self


def warned_seconds(warnings: list[str]) -> list[int]:
    """The rest of a life that each warning names."""
    return [int(found[1]) for found in map(re.compile(r"ends? in (\d+) s").search, warnings) if found]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv(VARIABLE, raising=False)
    return World(tmp_path)


@pytest.mark.parametrize(
    ("left_s", "fresh", "failed", "wait"),
    [
        (60.0, True, False, 30.0),
        (86_400.0, True, False, 3600.0),
        (86_400.0, False, False, 60.0),
        (1.0, True, False, 1.0),
        (-5.0, True, False, 10.0),
        (60.0, True, True, 7.5),
        (86_400.0, True, True, 60.0),
        (-5.0, True, True, 10.0),
    ],
)
def test_tokens_are_fetched_at_half_of_their_life_and_soon_after_a_failure(
    left_s: float, fresh: bool, failed: bool, wait: float
) -> None:
    assert wait_s(left_s, fresh, failed) == wait


def test_each_threshold_of_a_life_is_reported_once_and_again_for_a_longer_life() -> None:
    countdown = Countdown()
    assert [countdown.passed(left) for left in (100, 80, 75, 60, 50, 49, 9, 1, 0, -3)] == [
        None, None, 75, None, 50, None, 10, None, None, None,
    ]  # fmt: skip
    assert [countdown.passed(left) for left in (200, 101, 99, 5)] == [None, 75, 50, 10]


def test_fresh_tokens_are_replaced_when_they_are_due(world: World) -> None:
    assert world.keeper.renew()
    assert world.keeper.tokens == Tokens(b"first")
    assert not world.after(1799.0).keeper.is_due
    assert world.after(1.0).keeper.is_due
    assert not world.keeper.renew(), "the same tokens are no change"
    world.next = Fetched(b"second", 3600.0, True)
    assert world.keeper.renew()
    assert world.keeper.tokens == Tokens(b"second")


def test_a_process_with_a_ticket_uses_no_tokens_and_one_without_does(world: World, tmp_path: Path) -> None:
    world.keeper.renew()
    assert VARIABLE not in os.environ
    world.held, world.next = None, Fetched(b"second", 3600.0, True)
    world.keeper.renew()
    assert Path(os.environ[VARIABLE]).read_bytes() == b"second"
    world.own.close()


def test_an_expired_ticket_is_not_used(world: World) -> None:
    world.held = Ticket("ann@REALM", 0.0)
    world.keeper.renew()
    assert VARIABLE in os.environ
    world.own.close()


def test_failures_are_logged_at_each_threshold_and_keep_the_tokens(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.keeper.renew()
    world.next = StoreError("no delegation tokens for hdfs://a:1/runs: KDC unreachable")
    for _ in range(150):
        assert not world.after(36.0).keeper.renew()
    assert world.keeper.tokens == Tokens(b"first")
    warnings = [record.getMessage() for record in caplog.records]
    assert warned_seconds(warnings) == [2700, 1800, 360]
    assert len(warnings) == 4, "and once when they have expired"
    assert "executors have none" in warnings[3]
    assert "KDC unreachable" in warnings[0]
    assert "check that the KDC" in warnings[0]
    assert "first" not in caplog.text


def test_a_first_failure_is_logged_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.next = StoreError("no delegation tokens for hdfs://a:1/runs: KDC unreachable")
    assert not world.keeper.renew()
    assert not world.after(10.0).keeper.renew()
    assert world.keeper.tokens is None
    assert caplog.text.count("executors have none: check that the KDC") == 1


def test_the_end_of_tokens_that_cannot_be_replaced_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.held = None
    for life_s in (1000.0, 700.0, 400.0, 90.0):
        world.next = Fetched(b"of the application", life_s, False)
        world.keeper.renew()
    warnings = [record.getMessage() for record in caplog.records]
    assert warned_seconds(warnings) == [700, 400, 90]
    assert all("--principal and --keytab" in each for each in warnings)
    world.own.close()


def test_the_end_of_a_ticket_is_logged_with_its_principal(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.keeper.renew()
    for _ in range(19):
        world.after(1800.0).keeper.renew()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned_seconds(warnings) == [27000, 18000, 3600]
    assert all("ticket of ann@REALM" in each and "run `kinit ann@REALM`" in each for each in warnings)


def test_only_a_store_with_kerberos_needs_tokens(caplog: pytest.LogCaptureFixture) -> None:
    assert wants_tokens(KERBEROS)
    for address in (StoreAddress("/runs"), StoreAddress("hdfs://a:1/runs"), StoreAddress("s3://b", KERBEROS.settings)):
        assert not wants_tokens(address)
        assert tokens_for(None, address) is None
    assert not caplog.records


def test_a_session_without_a_jvm_logs_that(caplog: pytest.LogCaptureFixture) -> None:
    assert tokens_for(object(), KERBEROS) is None
    assert "Spark Connect" in caplog.text
