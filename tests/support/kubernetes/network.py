"""The network of a cluster: a bridge with cables to its nodes and to this machine, and routes between their pods."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.kubernetes.addresses import Block
from tests.support.kubernetes.namespaces import Namespaces, Place, run

_BRIDGE = "nodes"
_FORWARD = ("sysctl", "--quiet", "net.ipv4.ip_forward=1")


def connect_host(place: Place) -> None:
    """Build the bridge, and a cable to it from this machine, which then reaches all addresses of the cluster."""
    block, inside = place.block, place.namespaces
    inside.run("ip", "link", "add", _BRIDGE, "type", "bridge")
    inside.run("ip", "address", "add", f"{block.api}/24", "dev", _BRIDGE)
    inside.run("ip", "address", "add", f"{block.services[1]}/32", "dev", _BRIDGE)  # which kube-proxy would translate
    inside.run("ip", "link", "set", _BRIDGE, "up")
    inside.run(*_FORWARD)
    run("ip", "link", "add", place.link, "type", "veth", "peer", "name", "host", "netns", str(inside.holder))
    inside.run("ip", "link", "set", "host", "master", _BRIDGE, "up")
    run("ip", "address", "add", f"{block.host}/24", "dev", place.link)
    run("ip", "link", "set", place.link, "up")
    run("ip", "route", "add", str(block.network), "via", str(block.api))


def connect_node(place: Place, nodes: Sequence[Namespaces]) -> None:
    """Lay a cable from the bridge to the last of the nodes, which then reaches the pods of the others, and they its."""
    block, inside, number = place.block, place.namespaces, len(nodes) - 1
    node, address, pods = nodes[number], str(block.node(number)), str(block.pods(number))
    cable = _cable(number)
    ends = ("netns", str(inside.holder), "type", "veth", "peer", "name", "eth0", "netns", str(node.holder))
    run("ip", "link", "add", cable, *ends)
    inside.run("ip", "link", "set", cable, "master", _BRIDGE, "up")
    node.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
    node.run("ip", "link", "set", "eth0", "up")
    node.run("ip", "route", "add", "default", "via", str(block.api))
    node.run(*_FORWARD)
    inside.run("ip", "route", "add", pods, "via", address)
    for other, namespaces in enumerate(nodes[:-1]):
        namespaces.run("ip", "route", "add", pods, "via", address)
        node.run("ip", "route", "add", str(block.pods(other)), "via", str(block.node(other)))


@contextmanager
def cut(place: Place, number: int) -> Iterator[None]:
    """Lose what a node sends and gets, with its pods, until the block ends; no side learns of it."""
    place.namespaces.run("ip", "link", "set", _cable(number), "down")
    try:
        yield
    finally:
        place.namespaces.run("ip", "link", "set", _cable(number), "up")


def _cable(number: int) -> str:
    return f"node-{number}"


def write_plugins(folder: Path, block: Block, number: int) -> None:
    """Write the configuration by which pods of a node get their addresses, of the subnet of that node."""
    ranges = [[{"subnet": str(block.pods(number))}]]
    routes = [{"dst": "0.0.0.0/0"}]
    bridge: dict[str, Any] = {"type": "bridge", "bridge": "pods", "isGateway": True}
    bridge["ipam"] = {"type": "host-local", "ranges": ranges, "routes": routes}
    folder.mkdir(parents=True)
    (folder / "10-pods.conflist").write_text(
        json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}, indent=2)
    )
