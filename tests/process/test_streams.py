"""Feeders and members of streams, each in a process of its own: back-pressure, kills, retries, strangers."""

import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pyarrow.flight as flight
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.dataframes.feeder import TaskAttempt, feed
from sparktrain.executor.zygote_process import resource_limits
from sparktrain.protocol.certificates import RunCertificates, issue
from sparktrain.protocol.codec import decode, encode
from sparktrain.protocol.credentials import SERVER_NAME
from sparktrain.protocol.feed_messages import AUTHORIZATION, Enough, FeederHeartbeat, LastAnswer, OpenFeed
from tests.support.feeds import FIRST_ROW, FedMember, FeederProcess, LineProcess, closing_all, numbered, settled
from tests.support.hosts import two_hosts
from tests.support.processes import wait_until

LEASE_S = 4.0
ROWS, FEEDERS, PARTS, BATCH = 800_000, 2, 5, 10_000
PEAK_BYTES = 400 * 2**20
KEPT_BYTES = 20 * 2**20
AT_ONCE_S = 3.0


@pytest.fixture(scope="module")
def certificates() -> RunCertificates:
    return issue("streams")


@pytest.fixture
def started() -> Iterator[list[LineProcess]]:
    with closing_all() as processes:
        yield processes


@pytest.fixture
def member(started: list[LineProcess], certificates: RunCertificates) -> FedMember:
    """A member that has asked for the first epoch of `train`."""
    made = FedMember(certificates, LEASE_S)
    started.append(made)
    made.ask("start", "train", 1)
    return made


def feeder(started: list[LineProcess], *arguments: Any, **options: Any) -> FeederProcess:
    made = FeederProcess(*arguments, **options)
    started.append(made)
    return made


def ids(partition: int, rows: int) -> list[int]:
    """The range of ids of one partition."""
    return [partition * FIRST_ROW, partition * FIRST_ROW + rows - 1]


def test_rows_of_several_partitions_arrive_once_and_the_end_of_the_job_ends_the_epoch(
    member: FedMember, started: list[LineProcess]
) -> None:
    sizes = [2500, 0, 1, 7001]
    feeders = [feeder(started, member.ticket(), number, rows) for number, rows in enumerate(sizes)]
    member.send("take all", "train")
    assert [each.answer() for each in feeders] == [["fed", n, -(-n // 1000), False] for n in sizes]
    assert member.silent(0.2), "the driver ends the epoch, not the last exchange"
    assert member.ask("end", "train", 1, "") == [ids(0, 2500), ids(2, 1), ids(3, 7001)]


def test_a_failed_job_is_an_error_of_the_trainer(member: FedMember) -> None:
    """Not the end of the epoch, with fewer rows than there are."""
    member.send("end", "train", 1, "task 3 failed")
    assert member.ask("take all", "train") == ["StreamError", "stream 'train' broke off in epoch 1: task 3 failed"]


def test_a_slow_member_is_waited_for_with_bounded_memory(member: FedMember, started: list[LineProcess]) -> None:
    """40 MB are more than the queue holds of batches; the member takes nothing for more than a lease."""
    before = member.ask("memory")
    one = feeder(started, member.ticket(), 0, 400_000, width=784)
    wait_until(lambda: member.ask("memory") > before + 2**20, 30, "rows arrive")
    wait_until(lambda: settled(one), 30, "the feeder waits")
    held = member.ask("memory") - before
    assert one.silent(LEASE_S + 2), "it waits for longer than the lease, because the member sends heartbeats"
    assert member.ask("memory") - before < held + 8 * 2**20
    assert held < 80 * 2**20, f"{held / 2**20:.0f} MiB in the member"
    member.ask("take", "train", 20)
    assert one.silent(0.2)
    member.ask("stop", "train", 1)
    assert one.answer()[0] == "fed"


def test_a_member_keeps_nothing_of_the_rows_that_it_has_taken(
    started: list[LineProcess], certificates: RunCertificates
) -> None:
    """1.2 GB pass through its queue of 64 MiB; gRPC reads ahead of it as far as it expects the connection to carry."""
    fed = FedMember(certificates, env=resource_limits(1))
    started.append(fed)
    before, allocated_before = fed.ask("memory"), fed.ask("allocated")
    fed.ask("start", "train", 1)
    feeders = [feeder(started, fed.ticket(), number, ROWS, width=784, batch=BATCH) for number in range(FEEDERS)]
    wait_until(lambda: fed.ask("streams") == FEEDERS, 60, "the feeders are connected")
    wait_until(lambda: fed.ask("full", "train"), 60, "the queue is full")
    peak = max(fed.ask("drain", "train", FEEDERS * ROWS // PARTS - BATCH) for _ in range(PARTS))
    fed.ask("stop", "train", 1)
    assert [feeding.answer()[0] for feeding in feeders] == ["fed"] * FEEDERS
    wait_until(lambda: fed.ask("streams") == 0, 60, "the streams are closed")
    assert peak - before < PEAK_BYTES, f"{(peak - before) / 2**20:.0f} MiB on the way"
    # What gRPC has read ahead goes shortly after its stream.
    wait_until(lambda: fed.ask("allocated") - allocated_before < KEPT_BYTES, 30, "no row is left in memory")


def test_a_killed_member_is_an_error_at_once(member: FedMember, started: list[LineProcess]) -> None:
    one = feeder(started, member.ticket(), 0, 100_000, width=784)
    wait_until(lambda: member.ask("streams") == 1, 10, "the feeder is connected")
    wait_until(lambda: settled(one), 30, "the feeder waits")
    at = SystemClock().now()
    member.signal(signal.SIGKILL)
    kind, text = one.answer()
    assert SystemClock().now() - at < AT_ONCE_S
    assert kind in ("StreamError", "UnreachableMemberError")
    assert str(member.address) in text


def test_a_stopped_member_is_an_error_after_the_lease(member: FedMember, started: list[LineProcess]) -> None:
    one = feeder(started, member.ticket(), 0, 100_000, width=784)
    wait_until(lambda: member.ask("streams") == 1, 10, "the feeder is connected")
    wait_until(lambda: settled(one), 30, "the feeder waits")
    member.signal(signal.SIGSTOP)
    at = SystemClock().now()
    kind, text = one.answer()
    assert LEASE_S - 2 < SystemClock().now() - at < LEASE_S + 5
    assert (kind, "no heartbeat for 4 s" in text) == ("StreamError", True)


def test_a_retried_attempt_continues_after_the_rows_that_the_member_has(
    member: FedMember, started: list[LineProcess]
) -> None:
    first = feeder(started, member.ticket(), 0, 9000, pause_at=5)
    assert first.answer() == "paused"
    assert len(member.ask("take", "train", 3)) == 3
    first.signal(signal.SIGKILL)
    second = feeder(started, member.ticket(), 0, 9000, attempt=1)
    member.send("take", "train", 6)
    assert second.answer() == ["fed", 9000, 9, False]
    taken = member.answer()
    assert [each[0] for each in taken] == [3000, 4000, 5000, 6000, 7000, 8000], "no row twice, and none lost"
    member.send("end", "train", 1, "")
    assert member.ask("take all", "train") == []


def test_a_partition_may_wait_until_its_rows_are_used(member: FedMember, started: list[LineProcess]) -> None:
    """For longer than a lease; others have their turns meanwhile, and a second attempt waits as well."""
    ticket = replace(member.ticket(), until_taken=True)
    waiting = [feeder(started, ticket, partition, 10) for partition in range(2)]
    waiting.append(feeder(started, ticket, 0, 10, attempt=1))
    for partition in range(2):
        wait_until(lambda p=partition: member.ask("complete", "train", 1, p), 30, "its rows are in the queue")
    assert sorted(each[0] for each in member.ask("take", "train", 2)) == [0, FIRST_ROW]
    later = feeder(started, member.ticket(), 2, 2000)
    assert later.answer() == ["fed", 2000, 2, False]
    at = SystemClock().now()
    wait_until(lambda: SystemClock().now() > at + LEASE_S + 1, LEASE_S + 5, "a lease is over")
    assert all(each.silent(0.0) for each in waiting)
    member.send("take", "train", 3)  # there are two: the function waits for a third
    assert [each.answer() for each in waiting] == [["fed", 10, 1, False]] * 3
    assert feeder(started, member.ticket(), 3, 1).answer() == ["fed", 1, 1, False]
    assert [len(each) for each in member.answer()] == [1000, 1000, 1]


def test_a_partition_that_is_done_is_not_sent_again(member: FedMember, started: list[LineProcess]) -> None:
    """Spark repeats a finished task after the loss of its executor."""
    for attempt in range(2):
        again = feeder(started, member.ticket(), 0, 2000, attempt=attempt)
        assert again.answer() == ["fed", 2000, 2, False]
    member.send("end", "train", 1, "")
    assert member.ask("take all", "train") == [ids(0, 2000)]


def test_other_rows_in_a_retried_attempt_are_refused(member: FedMember, started: list[LineProcess]) -> None:
    first = feeder(started, member.ticket(), 0, 9000, pause_at=5)
    assert first.answer() == "paused"
    assert len(member.ask("take", "train", 5)) == 5
    first.signal(signal.SIGKILL)
    kind, text = feeder(started, member.ticket(), 0, 9000, attempt=1, seed=7).answer()
    assert (kind, "partition 0 gave other rows" in text) == ("DataError", True)


def test_a_speculative_attempt_waits_for_the_first(member: FedMember, started: list[LineProcess]) -> None:
    first = feeder(started, member.ticket(), 0, 6000, pause_at=3)
    assert first.answer() == "paused"
    second = feeder(started, member.ticket(), 0, 6000, attempt=1)
    wait_until(lambda: member.ask("streams") == 2, 10, "both are connected")
    first.send("continue")
    assert first.answer() == ["fed", 6000, 6, False]
    assert second.answer() == ["fed", 6000, 6, False], "Spark may keep the result of either"
    member.send("end", "train", 1, "")
    assert member.ask("take all", "train") == [ids(0, 6000)]


def test_a_speculative_attempt_replaces_one_that_hangs(member: FedMember, started: list[LineProcess]) -> None:
    first = feeder(started, member.ticket(), 0, 6000, pause_at=3)
    assert first.answer() == "paused"
    first.signal(signal.SIGSTOP)
    second = feeder(started, member.ticket(), 0, 6000, attempt=1)
    assert second.answer() == ["fed", 6000, 6, False]
    first.signal(signal.SIGCONT)
    first.send("continue")
    assert first.answer()[0] in ("fed", "StreamError")
    member.send("end", "train", 1, "")
    assert member.ask("take all", "train") == [ids(0, 6000)]


def test_a_member_that_stops_early_ends_its_feeders_well(member: FedMember, started: list[LineProcess]) -> None:
    blocked = feeder(started, member.ticket(), 0, 100_000, width=784)
    computing = feeder(started, member.ticket(), 1, 6000, pause_at=3)
    assert computing.answer() == "paused"
    member.ask("take", "train", 1)
    assert member.ask("stop", "train", 1) is True
    assert blocked.answer()[3] is True
    wait_until(lambda: member.ask("streams") == 0, 10, "a feeder that computes gets the word too")
    computing.send("continue")
    assert computing.answer()[3] is True
    later = feeder(started, member.ticket(), 2, 6000)
    assert later.answer() == ["fed", 0, 0, True]


def test_feeds_side_by_side_do_not_wait_for_each_other(member: FedMember, started: list[LineProcess]) -> None:
    member.ask("start", "validation", 1)
    blocked = feeder(started, member.ticket(), 0, 100_000, width=784)
    assert feeder(started, member.ticket("validation"), 0, 5000).answer() == ["fed", 5000, 5, False]
    member.send("end", "validation", 1, "")
    assert member.ask("take all", "validation") == [ids(0, 5000)]
    assert blocked.silent(0.2)


def test_strangers_are_refused(member: FedMember, started: list[LineProcess]) -> None:
    ticket = member.ticket()
    foreign_token = feeder(started, replace(ticket, token="another"), 0, 10)
    foreign_run = feeder(started, replace(ticket, certificates=issue("other").agent), 0, 10)
    wrong_side = feeder(started, replace(ticket, certificates=replace(issue("x").agent, authority=b"")), 0, 10)
    other_process = feeder(started, replace(ticket, addresses=(replace(member.address, server="gone"),)), 0, 10)
    kind, text = foreign_token.answer()
    assert (kind, "refused the token" in text) == ("StreamError", True)
    kind, text = foreign_run.answer()
    assert (kind, "other certificates" in text) == ("UnreachableMemberError", True)
    assert wrong_side.answer()[0] in ("UnreachableMemberError", "StreamError")
    kind, text = other_process.answer()
    assert (kind, "another process" in text) == ("StreamError", True)
    assert member.ask("streams") == 0


def test_more_exchanges_than_allowed_wait(certificates: RunCertificates, started: list[LineProcess]) -> None:
    """Eight partitions feed at a time; 32 are connected; the rest asks again. A lease has its usual length here."""
    member = FedMember(certificates)
    started.append(member)
    member.ask("start", "train", 1)

    def one(partition: int) -> int:
        this = TaskAttempt(partition, 0, partition)
        return feed(numbered(partition, 2000, 0, 0), member.ticket(), this).rows

    with ThreadPoolExecutor(40) as threads:
        fed = [threads.submit(one, partition) for partition in range(40)]
        wait_until(lambda: member.ask("streams") == 32, 30, "the member has as many as it allows")
        member.send("take all", "train")
        wait(fed, 60, FIRST_EXCEPTION)
        assert [each.result(0) for each in fed] == [2000] * 40
    assert member.ask("end", "train", 1, "") == [ids(partition, 2000) for partition in range(40)]


@pytest.mark.all(case="the host of a feeder is cut off", covered_by="a stopped member; a feeder that hangs is replaced")
def test_a_feeder_whose_host_is_cut_off_ends_and_another_continues(
    certificates: RunCertificates, started: list[LineProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    """No side gets a word from the network: both must find out by silence."""
    with two_hosts() as (here, there):
        member = FedMember(certificates, LEASE_S, here)
        started.append(member)
        member.ask("start", "train", 1)
        first = feeder(started, member.ticket(), 0, 9000, pause_at=5, host=there)
        assert first.answer() == "paused"
        assert len(member.ask("take", "train", 5)) == 5
        there.cut()
        at = SystemClock().now()
        first.send("continue")
        second = feeder(started, member.ticket(), 0, 9000, attempt=1, host=here)
        kind, text = first.answer()
        assert LEASE_S - 2 < SystemClock().now() - at < LEASE_S + 5
        assert (kind, text.startswith(f"the member at {member.address} gave no heartbeat")) == ("StreamError", True)
        assert second.answer() == ["fed", 9000, 9, False]
        assert f"the feeder of partition 0 at ipv4:{there.address}:" in capfd.readouterr().err, "the member's log"
        member.send("end", "train", 1, "")
        assert member.ask("take all", "train") == [[5000, 8999]], "no row twice, and none lost"


def test_a_feeder_learns_the_last_answer_though_its_write_fails(member: FedMember) -> None:
    """Flight drops messages that have not been read when a write fails; a member may end an exchange at any time."""
    ticket = member.ticket()
    client = flight.FlightClient(
        f"grpc+tls://{member.address}",
        tls_root_certs=ticket.certificates.authority,
        cert_chain=ticket.certificates.certificate,
        private_key=ticket.certificates.key,
        override_hostname=SERVER_NAME,
    )
    token = (AUTHORIZATION.encode(), f"Bearer {ticket.token}".encode())
    asked = OpenFeed(member.address.server, "train", 0, 0, 0, 0, 0)  # an epoch that is over
    writer, reader = client.do_exchange(
        flight.FlightDescriptor.for_command(encode(asked)), flight.FlightCallOptions(headers=[token])
    )

    def failed() -> bool:
        try:
            writer.write_metadata(encode(FeederHeartbeat()))
        except flight.FlightError:
            return True
        return False

    wait_until(failed, 10, "the member has ended the exchange")
    with pytest.raises(flight.FlightServerError) as raised:
        reader.read_chunk()
    assert decode(raised.value.extra_info, LastAnswer) == Enough()
    client.close()
