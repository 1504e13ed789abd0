"""The files and URLs at which the runs of a pool expect the notice that this host will be lost.

Each run names its own, and an agent serves several runs in turn. A notice concerns the host, so an agent looks at those
of all runs that are on: whichever of them has a notice announces the loss to all.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from sparktrain.base.clock import Clock
from sparktrain.executor.notice_probe import NoticeProbe


class HostNotices:
    """The probes of one agent, by address. All methods belong to the agent's event loop."""

    def __init__(
        self,
        clock: Clock,
        announce: Callable[[str], None],
        fail: Callable[[str, int, str], None],
        spawn: Callable[[Coroutine[None, None, None]], "asyncio.Task[Any]"],
    ) -> None:
        """`announce` and `fail` are those of `NoticeProbe`, the latter with the address first; `spawn` runs a task that
        ends with the agent."""
        self._clock = clock
        self._announce = announce
        self._fail = fail
        self._spawn = spawn
        self._probes: dict[str, NoticeProbe] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    @property
    def addresses(self) -> list[str]:
        """Those that it looks at."""
        return list(self._probes)

    async def watch(self, addresses: Iterable[str]) -> None:
        """Look at `addresses` from now on, and at no others; returns after the first look at those that are new."""
        distinct = list(dict.fromkeys(addresses))
        for address in self._probes.keys() - set(distinct):
            del self._probes[address]
            if (task := self._tasks.pop(address, None)) is not None:
                task.cancel()
        fresh = [self._probe_of(address) for address in distinct if address not in self._probes]
        await asyncio.gather(*map(self._start, fresh))

    def _probe_of(self, address: str) -> NoticeProbe:
        probe = NoticeProbe(address, self._clock, self._announce, partial(self._fail, address))
        self._probes[address] = probe
        return probe

    async def _start(self, probe: NoticeProbe) -> None:
        is_noticed = await probe.look()
        # Another run may have started meanwhile, and this one may be over.
        if not is_noticed and self._probes.get(probe.address) is probe:
            self._tasks[probe.address] = self._spawn(probe.watch())
