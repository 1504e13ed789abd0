"""What a session has, against what a call wants: decided from its facts alone."""

import socket
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.cluster import preflight
from sparktrain.cluster.preflight import HOST_KEY, PORT_KEY, Address, Facts
from sparktrain.config.gang_spec import Backend, GangSpec
from sparktrain.errors import ResourceError, SessionError, SpecError

CORES = 8
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
YARN = {"executor.instances": "4", "executor.cores": "4"}


def facts(master: str, executors: int | None = None, **conf: str) -> Facts:
    return Facts(master, {f"spark.{key}": value for key, value in conf.items()}, CORES, executors)


SLOTS = [
    ("local", {}, 1),
    ("local[*]", {}, CORES),
    ("local[4]", {}, 4),
    ("local[*,3]", {}, CORES),
    ("local[4, 3]", {}, 4),
    ("local[5]", {"task.cpus": "2"}, 2),
    (LOCAL_CLUSTER, {}, 2),
    ("local-cluster[2, 4, 1024]", {"task.cpus": "2"}, 4),
    ("local-cluster[2,4,1024]", {"executor.cores": "1"}, 2),
    (LOCAL_CLUSTER, {"task.cpus": "2"}, 0),
    ("yarn", YARN, 16),
    ("yarn", {**YARN, "task.cpus": "4"}, 4),
    ("yarn", {**YARN, "task.cpus": "3"}, 4),
    ("yarn", {}, 2),
    ("k8s://host:443", YARN, 16),
    ("yarn", {**YARN, "dynamicAllocation.enabled": "true"}, None),
    ("yarn", {**YARN, "dynamicAllocation.enabled": "true", "dynamicAllocation.maxExecutors": "10"}, 40),
    ("yarn", {**YARN, "dynamicAllocation.enabled": "false", "dynamicAllocation.maxExecutors": "10"}, 16),
    ("yarn", {**YARN, "executor.resource.gpu.amount": "2", "task.resource.gpu.amount": "1"}, 8),
    ("yarn", {**YARN, "executor.resource.gpu.amount": "1", "task.resource.gpu.amount": "0.5"}, 8),
    ("yarn", {**YARN, "executor.resource.gpu.amount": "8", "task.resource.gpu.amount": "1"}, 16),
    ("yarn", {**YARN, "task.resource.gpu.amount": "1"}, 0),
    ("spark://host:7077", {}, None),
    ("spark://host:7077", {"executor.cores": "2"}, None),
    ("spark://host:7077", {"cores.max": "6"}, 6),
    ("spark://host:7077", {"cores.max": "6", "task.cpus": "4"}, 1),
    ("spark://host:7077", {"cores.max": "10", "executor.cores": "4", "task.cpus": "2"}, 4),
    ("spark://host:7077", {"executor.cores": "2", "dynamicAllocation.enabled": "true"}, None),
    ("", {}, None),
    ("other://host", {"executor.instances": "3"}, 3),
]


@pytest.mark.parametrize(("master", "conf", "expected"), SLOTS)
def test_slots_by_configuration(master: str, conf: dict[str, str], expected: int | None) -> None:
    assert preflight.slots(facts(master, **conf)) == expected


AGENTS = [
    (facts("local[4]"), None, None, 4),
    (facts("local[4]"), None, 3, 3),
    (facts("local[4]"), None, 100, 4),
    (facts("local[4]"), 2, 100, 2),
    (facts("local[4]"), 4, 1, 4),
    (facts(""), None, 100, preflight.DEFAULT_AGENTS),
    (facts(""), None, 1, 1),
    (facts(""), 50, 100, 50),
    (facts("spark://host:7077", executors=3), None, 100, 3),
    (facts("spark://host:7077", executors=3, **{"executor.cores": "4"}), None, 100, 12),
    (facts("spark://host:7077", executors=3, **{"task.cpus": "4"}), None, 100, 3),
    (facts("spark://host:7077", executors=1), 8, 100, 8),  # the others have not registered yet
    (facts("yarn", executors=1, **YARN), None, 100, 16),
]


@pytest.mark.parametrize(("there", "wanted", "trials", "expected"), AGENTS)
def test_agents_for(there: Facts, wanted: int | None, trials: int | None, expected: int) -> None:
    assert preflight.agents_for(there, wanted, trials) == expected


@pytest.mark.parametrize(
    ("there", "trials", "size", "concurrent", "expected"),
    [
        (facts("local[8]"), 100, 1, 3, 3),
        (facts("local[8]"), 100, 2, 3, 6),
        (facts("local[8]"), 2, 2, 3, 4),
        (facts("local[8]"), None, 3, 9, 6),
        (facts("local[2]"), 100, 1, 5, 2),
        (facts("yarn", **{"dynamicAllocation.enabled": "true"}), 100, 2, 4, 8),
        (facts("yarn", **{"dynamicAllocation.enabled": "true"}), 3, 2, 4, 6),
    ],
)
def test_a_limit_counts_trials_and_not_their_members(
    there: Facts, trials: int | None, size: int, concurrent: int, expected: int
) -> None:
    assert preflight.agents_for(there, None, trials, size, concurrent) == expected


def test_more_agents_than_slots_are_refused_with_both_numbers() -> None:
    with pytest.raises(ResourceError, match=r"^agents \(5\) exceeds the 2 slots .*local-cluster\[2,1,1024\]"):
        preflight.agents_for(facts(LOCAL_CLUSTER), 5, 100)


@pytest.mark.parametrize("wanted", [0, -1, "2", 1.5, True])
def test_agents_is_a_positive_whole_number(wanted: Any) -> None:
    with pytest.raises(SpecError, match=r"^agents .*(at least 1|whole number)"):
        preflight.agents_for(facts("local[4]"), wanted, 100)


def test_a_session_without_a_slot_for_one_trial_is_refused_with_what_takes_it() -> None:
    with pytest.raises(ResourceError, match=r"has 0 slots, and one trial needs 1: .*lower spark\.task\.cpus \(2\)"):
        preflight.agents_for(facts(LOCAL_CLUSTER, **{"task.cpus": "2"}), None, 4)


GANGS = [
    (facts("local[4]"), None, 1, 2, 2),  # a run: one agent for each member
    (facts("local[4]"), 4, 1, 2, 4),  # two stand by
    (facts("local[5]"), None, 100, 2, 4),  # the fifth slot is of no use
    (facts("local[5]"), None, 1, 5, 5),
    (facts("local[8]"), None, 3, 2, 6),
    (facts("local[8]"), None, None, 3, 6),
    (facts(""), None, 1, 4, 4),  # nobody knows how many slots there are: the run waits for them
    (facts(""), None, 3, 2, 2),
    (facts("spark://host:7077", executors=1), None, 1, 4, 4),
    (facts("spark://host:7077", executors=5), None, 9, 2, 4),
]


@pytest.mark.parametrize(("there", "wanted", "trials", "size", "expected"), GANGS)
def test_agents_for_gangs(there: Facts, wanted: int | None, trials: int | None, size: int, expected: int) -> None:
    assert preflight.agents_for(there, wanted, trials, size) == expected


@given(st.integers(1, 64), st.none() | st.integers(1, 20), st.integers(1, 9))
def test_agents_of_gangs_are_as_many_as_can_be_used(there: int, trials: int | None, size: int) -> None:
    if there < size:
        with pytest.raises(ResourceError, match=rf"the gang has {size} members and the session has {there} slots?: "):
            preflight.agents_for(facts(f"local[{there}]"), None, trials, size)
        return
    agents = preflight.agents_for(facts(f"local[{there}]"), None, trials, size)
    assert agents % size == 0
    assert agents <= there
    assert agents // size == min(there // size, trials if trials is not None else there)


def test_a_gang_with_fewer_slots_than_members_is_refused_with_both_numbers() -> None:
    told = (
        r"the gang has 4 members and the session has 2 slots: .*local-cluster\[2,1,1024\].*lower the number of workers"
    )
    for wanted in (None, 2, 4):
        with pytest.raises(ResourceError, match=told):
            preflight.agents_for(facts(LOCAL_CLUSTER), wanted, 1, size=4)


def test_fewer_agents_than_members_are_refused() -> None:
    with pytest.raises(
        ResourceError, match=r"agents \(2\) is below the 3 members of the gang.*raise it, or leave it out"
    ):
        preflight.agents_for(facts("local[4]"), 2, 1, size=3)


def test_a_pool_that_is_too_small_for_a_gang_is_refused_with_both_numbers() -> None:
    preflight.check_pool(2, 2)
    with pytest.raises(ResourceError, match=r"the gang has 2 members and the pool has 1 agent: .*pool\(agents=2\)"):
        preflight.check_pool(1, 2)


@pytest.mark.parametrize(
    ("packages", "gang", "refused"),
    [
        ({"tensorflow"}, GangSpec(workers=2), True),
        ({"tensorflow", "horovod"}, GangSpec(workers=2), False),
        (set(), GangSpec(workers=2), False),  # a driver that trains nothing cannot know
        ({"tensorflow"}, GangSpec(workers=1), False),
        ({"tensorflow"}, GangSpec(workers=2, backend=Backend.TENSORFLOW), False),
        ({"tensorflow"}, GangSpec(workers=2, backend=Backend.NONE), False),
    ],
)
def test_a_ring_of_horovod_needs_horovod_where_there_is_tensorflow(
    packages: set[str], gang: GangSpec, refused: bool
) -> None:
    told = "needs Horovod.*`make horovod` .*build_horovod.sh.*backend='tensorflow', which needs nothing else"
    with pytest.raises(ResourceError, match=told) if refused else nullcontext():
        preflight.check_installed(gang, packages.__contains__)


def test_what_is_installed_is_found_without_importing_it() -> None:
    assert preflight.is_installed("sparktrain")
    assert not preflight.is_installed("sparktrain_of_nowhere")


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_gpus_are_refused_on_a_local_master_whatever_its_configuration(master: str) -> None:
    conf = {"task.resource.gpu.amount": "1", "executor.resource.gpu.amount": "1"}
    with pytest.raises(ResourceError, match=r"gpus \(1\) cannot be had on local.*would hang; use local-cluster"):
        preflight.check_gpus(facts(master, **conf), 1)


@pytest.mark.parametrize("amount", [None, "0.5", "2"])
def test_gpus_must_be_what_a_task_gets(amount: str | None) -> None:
    conf = {} if amount is None else {"task.resource.gpu.amount": amount}
    told = (
        rf"gpus \(1\) .*spark\.task\.resource\.gpu\.amount is {amount or 0}: set spark\.task\.resource\.gpu\.amount=1"
    )
    with pytest.raises(ResourceError, match=told):
        preflight.check_gpus(facts("yarn", **conf), 1)


def test_gpus_that_a_task_gets_are_accepted_and_none_are_needed_for_none() -> None:
    preflight.check_gpus(facts("yarn", **{"task.resource.gpu.amount": "1.0"}), 1)
    preflight.check_gpus(facts("local[*]"), 0)
    assert facts("local[*]").local
    assert not facts(LOCAL_CLUSTER).local


@pytest.fixture
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is `ours`, with the address 127.0.0.1."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "ours.example")
    monkeypatch.setattr(socket, "gethostname", lambda: "ours")
    monkeypatch.setattr(preflight, "is_ours", lambda host: host in ("ours", "ours.example", "127.0.0.1"))


ADDRESSES = [
    ({}, Address("ours.example", ("ours.example", "ours"), 0)),
    ({"driver.host": "127.0.0.1"}, Address("127.0.0.1", ("127.0.0.1", "ours.example", "ours"), 0)),
    ({"driver.host": "ours"}, Address("ours", ("ours", "ours.example"), 0)),
    ({"driver.bindAddress": "0.0.0.0"}, Address("0.0.0.0", ("ours.example", "ours"), 0)),
    # Spark's driver is elsewhere, as with Connect; or here, behind a router: both kinds of address are worth a try.
    ({"driver.host": "router"}, Address("ours.example", ("ours.example", "ours", "router"), 0)),
    (
        {"driver.host": "router", "driver.bindAddress": "0.0.0.0"},
        Address("0.0.0.0", ("ours.example", "ours", "router"), 0),
    ),
    ({"sparktrain.driver.host": "named"}, Address("ours.example", ("named",), 0)),
    ({"sparktrain.driver.host": "ours"}, Address("ours", ("ours",), 0)),
    ({"sparktrain.driver.host": ""}, Address("ours.example", ("ours.example", "ours"), 0)),
    (
        {"sparktrain.driver.host": "named", "driver.host": "127.0.0.1", "sparktrain.driver.port": "4040"},
        Address("127.0.0.1", ("named",), 4040),
    ),
    ({"sparktrain.driver.port": "0"}, Address("ours.example", ("ours.example", "ours"), 0)),
]


@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize(("conf", "expected"), ADDRESSES)
def test_where_the_coordinator_listens_and_what_executors_are_told(conf: dict[str, str], expected: Address) -> None:
    assert preflight.address_of(facts("yarn", **conf)) == expected


def test_a_machine_that_owns_none_of_its_names_is_told_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "is_ours", lambda host: False)
    with pytest.raises(SessionError, match=rf"none of router, .* address of this machine: set {HOST_KEY}.*bindAddress"):
        preflight.address_of(facts("yarn", **{"driver.host": "router"}))
    bound = preflight.address_of(facts("yarn", **{"driver.host": "router", "driver.bindAddress": "10.0.0.1"}))
    assert (bound.bind, bound.hosts[0]) == ("10.0.0.1", "router")


@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize("port", ["any", "-1", "65536", "4040.0", "²"])
def test_a_port_is_a_number_below_65536(port: str) -> None:
    with pytest.raises(SessionError, match=rf"^{PORT_KEY} \('.*'\) must be a port"):
        preflight.address_of(facts("yarn", **{"sparktrain.driver.port": port}))


def test_this_machine_owns_its_loopback_address_and_no_name_that_leads_nowhere() -> None:
    assert preflight.is_ours("127.0.0.1")
    assert not preflight.is_ours("no-such-host.invalid")


class Broken:
    """A session whose JVM is gone: every question is an error, of no known kind."""

    class conf:  # noqa: N801 - Spark's name
        @staticmethod
        def get(key: str, default: object) -> str:
            raise ConnectionError

    def range(self) -> None: ...


def test_a_session_that_does_not_answer_is_an_error_of_ours() -> None:
    session: Any = Broken()
    assert preflight.active_session(session) is session
    with pytest.raises(SessionError, match=r"cannot be used \(ConnectionError\): make a new one"):
        preflight.read_facts(session, CORES)
    not_one: Any = "local[2]"
    with pytest.raises(SessionError, match=r"spark \(str\) must be a SparkSession"):
        preflight.active_session(not_one)


class Py4JError(Exception):
    """As Py4J's."""


class Py4JNetworkError(Py4JError):
    """As Py4J's."""


class Py4JJavaError(Py4JError):
    """As Py4J's."""


def session_whose_jvm(answers: bool | Exception) -> Any:
    """A classic session; its JVM says whether its context is stopped, or the call raises."""

    def stopped() -> bool:
        if isinstance(answers, Exception):
            raise answers
        return answers

    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped))
    return SimpleNamespace(_sc=SimpleNamespace(_jsc=java), range=None)


@pytest.mark.parametrize(
    ("answers", "stopped"),
    [
        (True, True),
        (False, False),
        (ConnectionRefusedError(111, "Connection refused"), True),
        (Py4JError("An error occurred while calling o1.sc"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JJavaError("java.lang.OutOfMemoryError"), False),
        (OSError(24, "Too many open files"), False),
        (MemoryError(), False),
        (RuntimeError("can't start new thread"), False),
    ],
)
def test_only_a_jvm_that_does_not_answer_is_a_session_that_is_stopped(answers: bool | Exception, stopped: bool) -> None:
    assert preflight.is_stopped(session_whose_jvm(answers)) == stopped


def test_on_yarn_the_agents_job_must_outlive_every_restart_of_a_trial() -> None:
    for restarts, needed in ((0, 101), (3, 104)):
        preflight.check_failures(facts("yarn", **{"task.maxFailures": str(needed)}), restarts)
        with pytest.raises(
            ResourceError, match=rf"^spark\.task\.maxFailures \({needed - 1}\) must be {needed} or more"
        ):
            preflight.check_failures(facts("yarn", **{"task.maxFailures": str(needed - 1)}), restarts)
    with pytest.raises(ResourceError, match=r"\(4\) must be 104 .* set it when the session is made"):
        preflight.check_failures(facts("yarn"), 3)
    preflight.check_failures(facts("local[4]"), 3)


def test_how_many_executors_agents_need() -> None:
    there = facts("yarn", **{"executor.cores": "4", "task.cpus": "2"})
    assert preflight.slots_of_executor(there) == 2
    assert [preflight.executors_for(there, agents) for agents in (1, 2, 3)] == [1, 1, 2]
    assert preflight.executors_for(facts("yarn", **{"task.cpus": "2"}), 3) == 3, "as if each had room for one"


DYNAMIC = {"executor.resource.gpu.amount": "1", "dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("there", "gang", "expected"),
    [
        (facts("yarn", **DYNAMIC), GangSpec(workers=2, ps=1, evaluator=True, backend="tensorflow"), 2),
        (facts("k8s://host", **DYNAMIC), GangSpec(workers=2, ps=1, backend="tensorflow"), 1),
        (facts("yarn", **DYNAMIC), GangSpec(workers=2), 0),
        (facts("yarn", **DYNAMIC | {"dynamicAllocation.enabled": "false"}), GangSpec(ps=1, backend="tensorflow"), 0),
        (facts("yarn", **{"dynamicAllocation.enabled": "true"}), GangSpec(ps=1, backend="tensorflow"), 0),
        (facts(LOCAL_CLUSTER, **DYNAMIC), GangSpec(ps=1, backend="tensorflow"), 0),
    ],
)
def test_members_that_can_do_without_gpus(there: Facts, gang: GangSpec, expected: int) -> None:
    assert preflight.members_without_gpus(there, gang) == expected
