"""A member that is lost while the others make the group of the next ring: torch would wait for it until its timeout."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist

from sparktrain.base.clock import SystemClock
from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.backend import Exchange, Joining
from sparktrain.training.collectives.ring_exchange import RingExchange
from sparktrain.training.frameworks.torch.torch_ring import TorchRing

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

TIMEOUT_S = 60.0
LOST_S = 0.3
AT_ONCE_S = 10.0


class Arrived(Exchange):
    """The exchange of a member to which the other one has come, in ring 1."""

    def __init__(self, rank: int) -> None:
        self._values = [(f"r1/here/{1 - rank}", b"")]

    def share(self, key: str, value: bytes) -> None:
        """See base class."""

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        """See base class."""
        if self._values:
            return self._values.pop()
        time.sleep(min(timeout_s, 0.05))
        return None

    def moved(self, rank: int) -> MemberAddress | None:
        """See base class."""
        return None


@pytest.fixture
def port() -> int:
    """A port that no process listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(autouse=True)
def no_group() -> Iterator[None]:
    """No group outlives a test, and no rank in the environment: later tests start processes that would get it."""
    before = set(os.environ)
    yield
    for name in set(os.environ) - before:
        del os.environ[name]
    if dist.is_initialized():
        dist.destroy_process_group()


def member(rank: int, port: int) -> tuple[TorchRing, Formation, RingExchange, dist.TCPStore | None]:
    """A member of a gang of two, which has left its first ring; the chief serves the store."""
    places = (MemberAddress("host", "127.0.0.1", port, Role.CHIEF), MemberAddress("host", "127.0.0.1", 0, Role.WORKER))
    exchange = RingExchange(Arrived(rank), 1, SystemClock())
    formation = Formation(rank, places)
    joining = Joining(formation, exchange, lambda: None, TIMEOUT_S)
    server = None
    if rank == 0:
        limit = timedelta(seconds=TIMEOUT_S)
        server = dist.TCPStore("127.0.0.1", port, is_master=True, timeout=limit, wait_for_workers=False)
    return TorchRing(joining, server, dist.HashStore()), formation, exchange, server


def lose(exchange: RingExchange) -> threading.Timer:
    """The members form ring 2 soon, for another one is lost."""
    timer = threading.Timer(LOST_S, exchange.leave, (2,))
    timer.start()
    return timer


def check_leaves_at_once(ring: TorchRing, formation: Formation, exchange: RingExchange) -> None:
    """The member leaves the group that it joins as soon as another member is lost."""
    timer = lose(exchange)
    started = time.monotonic()
    with pytest.raises(FormError, match="another member is lost"):
        ring.rejoin(formation, 1)
    assert time.monotonic() - started < AT_ONCE_S
    timer.join()


@pytest.mark.parametrize("is_identified", [False, True])
def test_a_member_leaves_the_group_that_another_one_will_not_join(port: int, is_identified: bool) -> None:
    ring, formation, exchange, server = member(0, port)
    assert server is not None
    if is_identified:
        server.set("sparktrain/1/gpu/1", b"")  # it is lost after that, within init_process_group
    check_leaves_at_once(ring, formation, exchange)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.get_world_size() == 1, "and makes another one"


def test_a_member_does_not_wait_for_the_store_of_a_chief_that_is_lost(port: int) -> None:
    ring, formation, exchange, _ = member(1, port)
    check_leaves_at_once(ring, formation, exchange)
