"""Three hosts with addresses of their own, and names that do not resolve: losses of the network between them."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.cluster import driver_address
from sparktrain.cluster.driver_address import Address
from sparktrain.state.liveness import ANSWER_S
from tests.faults.standalone import standalone
from tests.hosts.learning import fitted, served, together, work
from tests.support.hosts import Network, bridged_hosts
from tests.support.local_spark import spark_session
from tests.support.processes import Sighted, wait_until
from tests.support.wall_clock import WallClock

ONE_DIRECTION = pytest.mark.all(
    case="packets of one direction are lost", covered_by="a host that cannot be reached in a sweep"
)

HOSTS = 3
STARTS_S = 60.0
LOST_S = 60.0
"""Until a host that cannot be reached is given up, and its trial starts elsewhere."""

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("ip") is None, reason="hosts need root and the command ip"),
]


@dataclass
class Cluster:
    network: Network
    session: SparkSession
    clocks: list[WallClock]

    @contextmanager
    def started(
        self, folder: Path, call: Callable[..., Any], function: Any, *given: Any, **named: Any
    ) -> Iterator[Future[Any]]:
        """A call of sparktrain in a thread: its future. Its functions may end after this context at the latest."""
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(call, function, *given, spark=self.session, **named, **options(folder))
            try:
                yield running
            finally:
                for name in ("go", *(f"go-{x}" for x in range(HOSTS))):
                    (folder / name).touch()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with bridged_hosts(HOSTS) as network:
        addresses = [each.address for each in network.hosts]
        here = {"spark.driver.host": network.address, "spark.driver.bindAddress": network.address}
        clocks = [WallClock(tmp_path_factory.mktemp("clock")) for _ in addresses]
        enter = [[*host.enter, *clock.words] for host, clock in zip(network.hosts, clocks, strict=True)]
        with (
            standalone(folder, addresses, network.address, enter) as spark,
            spark_session(spark.url, folder, here) as session,
        ):
            yield Cluster(network, session, clocks)


@dataclass
class Note:
    host: str
    pid: int
    at: float

    @property
    def number(self) -> int:
        return int(self.host.removeprefix("host-"))


def read(folder: Path, name: str, timeout_s: float = STARTS_S) -> Note:
    wait_until((folder / name).exists, timeout_s, f"{name} is written")
    host, pid, at = (folder / name).read_text().split()
    return Note(host, int(pid), float(at))


def over(pid: int) -> bool:
    return not Sighted([pid]).alive()


SWEEP: dict[str, Any] = {"metric": "x", "mode": "max", "backend": "none"}


def trials(folder: Path) -> dict[str, list[Any]]:
    """The space of a sweep of `work` with a trial for each host."""
    return {"x": list(range(HOSTS)), "folder": [str(folder)]}


def options(folder: Path) -> dict[str, Any]:
    return {"dir": str(folder / "runs"), "progress": False, "preload": []}


@pytest.mark.parametrize("backend", ["tensorflow", "horovod"])
def test_a_gang_has_members_on_all_hosts(cluster: Cluster, tmp_path: Path, backend: str) -> None:
    gang = {"workers": HOSTS, "backend": backend}
    with cluster.started(tmp_path, st.run, together, {"folder": str(tmp_path)}, **gang) as running:
        hosts = {read(tmp_path, f"start-{rank}-1").host for rank in range(HOSTS)}
    result = running.result(STARTS_S)
    assert hosts == {f"host-{number}" for number in range(HOSTS)}
    assert result.metrics["total"] == 6 * result.metrics["step"]


@pytest.mark.parametrize(
    "way", ["link", pytest.param("out", marks=ONE_DIRECTION), pytest.param("in", marks=ONE_DIRECTION)]
)
def test_a_trial_on_a_host_that_cannot_be_reached_runs_elsewhere_and_counts_once(
    cluster: Cluster, tmp_path: Path, way: str, record_property: Any
) -> None:
    with cluster.started(tmp_path, st.sweep, work, trials(tmp_path), **SWEEP) as running:
        notes = [read(tmp_path, f"start-{x}-1") for x in range(HOSTS)]
        assert {each.host for each in notes} == {f"host-{number}" for number in range(HOSTS)}
        with cluster.network.cut(notes[1].number, way) as cut_at:
            for x in (0, 2):
                (tmp_path / f"go-{x}").touch()
            again = read(tmp_path, "start-1-2", LOST_S)
            assert again.host != notes[1].host
            wait_until(lambda: over(notes[1].pid), LOST_S, "the old member has ended")
    result = running.result(LOST_S)
    assert [(each.status, each.metrics) for each in result.trials] == [
        ("succeeded", {"x": float(x), "generation": 1 + (x == 1)}) for x in range(HOSTS)
    ]
    assert sorted(path.name for path in tmp_path.glob("end-*")) == ["end-0-1", "end-1-2", "end-2-1"]
    record_property("seconds until it starts elsewhere", round(again.at - cut_at, 1))


LOSES_A_HOST = pytest.mark.all(
    case="a gang loses a host", covered_by="a gang on all hosts; a host that cannot be reached in a sweep"
)


@pytest.mark.parametrize(
    "backend", [pytest.param("tensorflow", marks=LOSES_A_HOST), pytest.param("torch", marks=pytest.mark.torch)]
)
def test_a_gang_that_loses_a_host_continues_on_the_others(
    cluster: Cluster, tmp_path: Path, record_property: Any, backend: str
) -> None:
    gang = {"workers": 2, "agents": HOSTS, "backend": backend}
    with cluster.started(tmp_path, st.run, together, {"folder": str(tmp_path)}, **gang) as running:
        notes = [read(tmp_path, f"start-{rank}-1") for rank in range(2)]
        wait_until(lambda: list(tmp_path.glob("runs/*/trials/**/manifest-*")), STARTS_S, "there is a checkpoint")
        with cluster.network.cut(notes[1].number) as cut_at:
            again = [read(tmp_path, f"start-{rank}-2", LOST_S) for rank in range(2)]
            assert notes[1].host not in {each.host for each in again}
        wait_until(lambda: over(notes[1].pid), LOST_S, "the old member has ended")
    result = running.result(LOST_S)
    [restart] = result.restarts
    assert restart.host in (notes[1].host, cluster.network.hosts[notes[1].number].address)
    assert result.metrics["total"] == 3 * result.metrics["step"]
    record_property("seconds until the gang trains elsewhere", round(again[0].at - cut_at, 1))


@pytest.mark.all(
    case="a ring of Horovod that loses a host", covered_by="a ring on all hosts; `unit/state/test_liveness`"
)
def test_a_ring_heals_soon_after_the_host_of_a_member_is_cut_off(
    cluster: Cluster, tmp_path: Path, record_property: Any
) -> None:
    def newest(rank: int) -> int:
        prefix = f"step-{rank}-"
        return max((int(path.name.removeprefix(prefix)) for path in tmp_path.glob(f"{prefix}*")), default=0)

    gang = {"workers": 2, "agents": HOSTS, "backend": "horovod"}
    with cluster.started(tmp_path, st.run, fitted, {"folder": str(tmp_path)}, **gang) as running:
        wait_until(lambda: min(newest(0), newest(1)) > 20, STARTS_S, "the gang trains")
        first = [read(tmp_path, f"step-{rank}-1") for rank in range(2)]
        with cluster.network.cut(first[1].number) as cut_at:
            step = newest(0)
            wait_until(lambda: newest(1) > step + 5, LOST_S, "the gang trains elsewhere")
            again = [read(tmp_path, f"step-{rank}-{step + 5}") for rank in range(2)]
    result = running.result(LOST_S)
    [restart] = result.restarts
    assert (restart.rank, restart.healed, restart.steps_lost) == (1, True, 0)
    assert again[0].pid == first[0].pid, "the other member has kept its process"
    assert again[1].host not in {each.host for each in first}
    assert f"no answer for {ANSWER_S:g} s" in restart.cause, "its ring has noticed it before its agent's lease ends"
    record_property("seconds until the ring has healed", round(again[0].at - cut_at, 1))


@pytest.mark.all(
    case="a parameter server that moves from a lost host", covered_by="a host that cannot be reached in a sweep"
)
def test_a_parameter_server_moves_from_a_host_that_is_cut_off(
    cluster: Cluster, tmp_path: Path, record_property: Any
) -> None:
    def newest() -> int:
        return max((int(path.name.partition("-")[2]) for path in tmp_path.glob("step-*")), default=0)

    gang = {"workers": 1, "ps": 1, "agents": HOSTS, "backend": "parameter-server"}
    with cluster.started(tmp_path, st.run, served, {"folder": str(tmp_path)}, **gang) as running:
        wait_until(lambda: newest() > 20, STARTS_S, "the gang trains")
        [server] = [path.name.partition("-")[2] for path in tmp_path.glob("server-*")]
        [number] = [number for number, each in enumerate(cluster.network.hosts) if each.address == server]
        with cluster.network.cut(number) as cut_at:
            step = newest()
            wait_until(lambda: newest() > step + 20, LOST_S, "the gang trains on by the successor")
            again_at = read(tmp_path, f"step-{newest()}").at
    result = running.result(LOST_S)
    assert [(each.rank, each.alone) for each in result.restarts] == [(1, True)]
    assert result.metrics["last"] < result.metrics["first"]
    record_property("seconds until the gang trains again", round(again_at - cut_at, 1))


@pytest.mark.all(case="a slow link", covered_by="a gang on all hosts")
def test_a_host_behind_a_slow_link_takes_part(cluster: Cluster, tmp_path: Path) -> None:
    slow = cluster.network.hosts[1]
    slow.run("tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", "1mbit", "burst", "32kbit", "latency", "1s")
    try:
        for x in range(HOSTS):
            (tmp_path / f"go-{x}").touch()
        result = st.sweep(work, trials(tmp_path), spark=cluster.session, **SWEEP, **options(tmp_path))
    finally:
        slow.run("tc", "qdisc", "del", "dev", "cable", "root")
    assert [each.status for each in result.trials] == ["succeeded"] * HOSTS


HOUR_S = 3600


@pytest.fixture
def apart(cluster: Cluster) -> Iterator[None]:
    """The clock of one host is an hour ahead, and that of another one an hour behind."""
    for clock, ahead_s in zip(cluster.clocks, (HOUR_S, -HOUR_S, 0), strict=True):
        clock.set(ahead_s)
    yield
    for clock in cluster.clocks:
        clock.set(0)


@pytest.mark.all(case="clocks an hour apart", covered_by="a gang on all hosts")
@pytest.mark.usefixtures("apart")
def test_hosts_with_clocks_an_hour_apart_train_together(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    started_at = time.time()
    result = st.run(
        together, {"folder": str(tmp_path), "steps": 40}, workers=HOSTS, backend="tensorflow", spark=cluster.session,
        **options(tmp_path),
    )  # fmt: skip
    notes = [read(tmp_path, f"start-{rank}-1") for rank in range(HOSTS)]
    ahead = {each.host: round((each.at - started_at) / HOUR_S) for each in notes}
    assert ahead == {"host-0": 1, "host-1": -1, "host-2": 0}
    assert (result.metrics, result.restarts) == ({"step": 40.0, "total": 240.0}, ())
    assert 0 < result.seconds < STARTS_S


@pytest.mark.all(case="a host that sleeps for an hour", covered_by="`process/test_member_sessions`")
def test_a_host_that_wakes_up_an_hour_later_does_not_count_and_ends_its_old_members(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The old member has its result at once when it wakes up, while the run is still there."""
    with cluster.started(tmp_path, st.sweep, work, trials(tmp_path), **SWEEP) as running:
        notes = [read(tmp_path, f"start-{x}-1") for x in range(HOSTS)]
        number = notes[1].number
        try:
            with cluster.network.hosts[number].frozen(), cluster.network.cut(number):
                (tmp_path / "go-0").touch()
                again = read(tmp_path, "start-1-2", LOST_S)
                assert again.host != notes[1].host
                (tmp_path / "go-1").touch()
                wait_until((tmp_path / "end-1-2").exists, STARTS_S, "the trial ends elsewhere")
                cluster.clocks[number].set(HOUR_S)
            wait_until(lambda: over(notes[1].pid), LOST_S, "the old member has ended")
        finally:
            cluster.clocks[number].set(0)
    result = running.result(LOST_S)
    assert [(each.status, each.metrics) for each in result.trials] == [
        ("succeeded", {"x": float(x), "generation": 1 + (x == 1)}) for x in range(HOSTS)
    ]


@pytest.mark.all(case="a link with delay and loss", covered_by="a gang on all hosts")
def test_a_gang_trains_over_a_link_with_delay_and_loss(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with cluster.network.far(1, delay_s=0.05, loss=0.01):
        result = st.run(
            together, {"folder": str(tmp_path), "steps": 30}, workers=HOSTS, backend="tensorflow",
            spark=cluster.session, **options(tmp_path),
        )  # fmt: skip
    assert (result.metrics, result.restarts) == ({"step": 30.0, "total": 180.0}, ())


ELSEWHERE = "198.51.100.7"
"""An address of no host: a packet to it is lost without an answer."""


@pytest.fixture
def lost_packets(cluster: Cluster) -> Iterator[None]:
    for each in cluster.network.hosts:
        each.run("ip", "route", "add", "blackhole", f"{ELSEWHERE}/32")
    yield
    for each in cluster.network.hosts:
        each.run("ip", "route", "del", "blackhole", f"{ELSEWHERE}/32")


@pytest.mark.all(case="a driver with two addresses", covered_by="`unit/cluster/test_driver_address`")
@pytest.mark.usefixtures("lost_packets")
def test_of_two_addresses_of_the_driver_agents_find_the_one_that_they_reach(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cluster.network.address
    monkeypatch.setattr(driver_address, "address_of", lambda conf: Address(here, (ELSEWHERE, here), 0))
    (tmp_path / "go-1").touch()
    result = st.sweep(work, {**trials(tmp_path), "x": [1]}, spark=cluster.session, **SWEEP, **options(tmp_path))
    assert [each.status for each in result.trials] == ["succeeded"]


@pytest.mark.all(case="a driver with an address that no host reaches", covered_by="`unit/cluster/test_driver_address`")
@pytest.mark.usefixtures("lost_packets")
def test_an_address_of_the_driver_that_no_host_reaches_is_named(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cluster.network.address
    monkeypatch.setattr(driver_address, "address_of", lambda conf: Address(here, (ELSEWHERE,), 0))
    with pytest.raises(st.SparktrainError) as raised:
        st.sweep(
            work, {**trials(tmp_path), "x": [1]}, spark=cluster.session, start_timeout="90s", **SWEEP,
            **options(tmp_path),
        )  # fmt: skip
    assert ELSEWHERE in str(raised.value)
    assert "spark.driver.host is one that executors reach" in str(raised.value)
