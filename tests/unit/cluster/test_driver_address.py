"""Where the coordinator listens, and where executors look for it."""

import re
import socket

import pytest

from sparktrain.cluster import driver_address
from sparktrain.cluster.driver_address import HOST_KEY, PORT_KEY, Address
from sparktrain.cluster.spark_facts import Facts
from sparktrain.errors import SessionError


def _spark(conf: dict[str, str]) -> dict[str, str]:
    return {f"spark.{key}": value for key, value in conf.items()}


@pytest.fixture
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is `ours`, with the address 127.0.0.1."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "ours.example")
    monkeypatch.setattr(socket, "gethostname", lambda: "ours")
    monkeypatch.setattr(driver_address, "is_ours", lambda host: host in ("ours", "ours.example", "127.0.0.1"))


ADDRESSES = [
    ({}, Address("ours.example", ("ours.example", "ours"), 0)),
    ({"driver.host": "127.0.0.1"}, Address("127.0.0.1", ("127.0.0.1", "ours.example", "ours"), 0)),
    ({"driver.host": "ours"}, Address("ours", ("ours", "ours.example"), 0)),
    ({"driver.bindAddress": "0.0.0.0"}, Address("0.0.0.0", ("ours.example", "ours"), 0)),
    # Spark's driver is elsewhere, as with Connect, or here behind a router: agents try both kinds of address.
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
def test_where_the_coordinator_listens_and_where_executors_look_for_it(conf: dict[str, str], expected: Address) -> None:
    assert driver_address.address_of(_spark(conf)) == expected


POD = "192.0.2.7"
"""The address of the driver's pod."""


@pytest.mark.parametrize(("conf", "expected"), [
    # Spark has replaced spark.driver.host by the address that it listens on.
    ({"driver.host": POD}, Address(POD, (POD,), 0)),
    ({"driver.host": POD, "driver.bindAddress": POD}, Address(POD, (POD,), 0)),
    # With useDriverPodIP=false Spark leaves the host that the user has set.
    ({"driver.host": "driver.training.svc", "driver.bindAddress": POD}, Address(POD, (POD, "driver.training.svc"), 0)),
    (
        {"driver.host": "driver.training.svc", "driver.bindAddress": "0.0.0.0"},
        Address("0.0.0.0", (POD, "driver.training.svc"), 0),
    ),
    (
        {"driver.host": "driver.training.svc", "driver.bindAddress": "::"},
        Address("::", (POD, "driver.training.svc"), 0),
    ),
    ({"driver.host": POD, "sparktrain.driver.host": "named"}, Address(POD, ("named",), 0)),
])  # fmt: skip
def test_in_pods_executors_get_the_address_of_a_driver_whose_name_they_cannot_resolve(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], expected: Address
) -> None:
    monkeypatch.setattr(driver_address, "_addresses_here", lambda: [POD])
    monkeypatch.setattr(driver_address, "is_ours", lambda host: host in (POD, "training-driver"))
    monkeypatch.setattr(socket, "gethostname", lambda: "training-driver")
    assert Facts("k8s://https://192.0.2.1:6443", _spark(conf) | {"spark.master": "k8s://h"}, 2).address == expected


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::", "[::]"])
@pytest.mark.parametrize(("master", "step"), [
    ("k8s://https://192.0.2.1:6443", "on Kubernetes Spark sets it to spark.driver.bindAddress; leave that out"),
    ("yarn", "set it to an address of this machine"),
])  # fmt: skip
def test_a_driver_that_its_own_executors_cannot_reach_is_refused(wildcard: str, master: str, step: str) -> None:
    conf = {"spark.driver.host": wildcard, "spark.driver.bindAddress": wildcard, "spark.master": master}
    with pytest.raises(SessionError, match=re.escape(f"spark.driver.host is {wildcard}, at which")) as raised:
        driver_address.address_of(conf | {HOST_KEY: "named"})
    assert step in str(raised.value)


def test_the_addresses_of_this_machine_lead_here_from_others() -> None:
    assert not [address for address in driver_address._addresses_here() if address.startswith("127.")]
    assert all(map(driver_address.is_ours, driver_address._addresses_here()))


HERE = ("127.0.0.1",)
OURS = ("ours", "ours.example")


@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize(("master", "connect", "conf", "expected"), [
    ("local[2]", False, {"driver.host": "ours"}, Address("127.0.0.1", ("127.0.0.1",), 0)),
    ("local", False, {"driver.host": "ours", "sparktrain.driver.port": "4040"}, Address("127.0.0.1", HERE, 4040)),
    ("local-cluster[2,1,1024]", False, {"driver.host": "ours"}, Address("127.0.0.1", ("127.0.0.1",), 0)),
    ("local[2]", False, {"driver.host": "ours", "driver.bindAddress": "0.0.0.0"}, Address("0.0.0.0", OURS, 0)),
    ("local[2]", False, {"sparktrain.driver.host": "ours"}, Address("ours", ("ours",), 0)),
    ("local[2]", True, {"driver.host": "router"}, Address("ours.example", ("ours.example", "ours", "router"), 0)),
    ("spark://ours:7077", False, {"driver.host": "ours"}, Address("ours", ("ours", "ours.example"), 0)),
    ("yarn", False, {"driver.host": "ours"}, Address("ours", ("ours", "ours.example"), 0)),
])  # fmt: skip
def test_with_executors_on_this_machine_alone_nothing_listens_on_the_network(
    master: str, connect: bool, conf: dict[str, str], expected: Address
) -> None:
    assert Facts(master, _spark(conf), 2, None, connect).address == expected


def test_a_machine_that_owns_none_of_its_names_is_refused_with_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_address, "is_ours", lambda host: False)
    with pytest.raises(SessionError, match=rf"none of router, .* address of this machine: set {HOST_KEY}.*bindAddress"):
        driver_address.address_of({"spark.driver.host": "router"})
    bound = driver_address.address_of({"spark.driver.host": "router", "spark.driver.bindAddress": "10.0.0.1"})
    assert (bound.bind, bound.hosts[0]) == ("10.0.0.1", "router")


@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize("port", ["any", "-1", "65536", "4040.0", "²"])
def test_a_port_is_a_number_below_65536(port: str) -> None:
    with pytest.raises(SessionError, match=rf"^{PORT_KEY} \('.*'\) must be a port"):
        driver_address.address_of({PORT_KEY: port})


def test_this_machine_owns_its_loopback_address_and_no_name_that_leads_nowhere() -> None:
    assert driver_address.is_ours("127.0.0.1")
    assert not driver_address.is_ours("no-such-host.invalid")


@pytest.mark.parametrize(("bind", "host"), [("127.0.0.1", "localhost"), ("0.0.0.0", "edge-1"), ("192.0.2.7", "edge-1")])
def test_browsers_find_a_driver_by_its_first_name_unless_it_is_on_this_machine(bind: str, host: str) -> None:
    assert Address(bind, ("edge-1", "192.0.2.7"), 0).in_browsers == host
