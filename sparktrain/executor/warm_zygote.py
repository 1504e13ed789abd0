"""Keeps a zygote alive, with one spare child ahead of need."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.errors import InfraError
from sparktrain.executor.zygote_process import (
    MemberProcess,
    ZygoteLostError,
    ZygoteProcess,
    resource_limits,
    scratch_root,
)
from sparktrain.store.held_folders import HeldFolder, hold, tidy

RESTARTS = 20
"""How many zygotes may be lost without a member before the agent leaves for a while: the host must have a problem. With
a member the loss counts for the member, because its function may have ended the zygote; retries are limited there."""
RETRY_S = 0.05
"""The interval of checks whether a lost zygote is replaced."""


class WarmZygote:
    """The zygote of one agent task, replaced when it is lost. Outlives an agent's stream."""

    def __init__(
        self,
        scratch: Path,
        sys_path: Sequence[str],
        env: Mapping[str, str],
        clock: Clock,
        *,
        restarts: int = RESTARTS,
    ) -> None:
        self.scratch = scratch
        self._sys_path = sys_path
        self._env = env
        self._clock = clock
        self._restarts = restarts
        self._zygote = self._new()
        self._modules: dict[str, None] = {}
        """The modules to preload, in the order of their first request."""
        self._loaded: set[str] = set()
        self._loading = False
        self._spare: asyncio.Task[MemberProcess] | None = None
        self._newest_member: MemberProcess | None = None
        """The newest member."""
        self._lost = 0
        self._closed = False
        self._lock = asyncio.Lock()

    def forgive(self) -> None:
        """Count losses from 0 again."""
        self._lost = 0

    def start(self, *, forked: bool = False) -> None:
        """Start the zygote's process, before any gRPC channel exists in this process. Blocks only for fork and exec."""
        self._zygote.start(forked=forked)

    async def preload(self, modules: Sequence[str]) -> dict[str, str]:
        """Let the zygote import `modules`, then fork a spare; returns the modules that failed, with the reason."""
        self._modules.update(dict.fromkeys(modules))
        async with self._lock:
            with suppress(ZygoteLostError):  # keep() replaces it, and the next one imports all modules
                return await self._load()
        return {}

    async def take(self) -> MemberProcess:
        """A waiting child, at once if there is a spare. Waits for the replacement of a lost zygote."""
        while True:
            async with self._lock:
                self._fork_spare()
                spare = self._spare
                self._spare = None
                with suppress(ZygoteLostError):
                    assert spare is not None
                    child = self._newest_member = await spare
                    self._fork_spare()
                    return child
            await self._clock.sleep(RETRY_S)

    async def keep(self) -> None:
        """Replace the zygote whenever it is lost, until `close`. Raises ZygoteLostError after too many losses."""
        while True:
            await self._zygote.wait_lost()
            async with self._lock:
                if self._closed:
                    return
                # With a member the function may be at fault, and retries of trials are limited elsewhere.
                self._lost += self._newest_member is None or not self._newest_member.lost
                self._newest_member = None
                if self._lost > self._restarts:
                    raise ZygoteLostError(f"the zygote was lost {self._lost} times; see the executor's memory limits")
                await self._close()
                if self._loading:  # an import ended the zygote: it would end the next one too
                    self._modules.clear()
                self._zygote = self._new()
                self._loaded = set()
                self._loading = False
                self._zygote.start()
                with suppress(ZygoteLostError):
                    await self._load()

    async def close(self) -> None:
        """End the zygote and every process below it, for good."""
        self._closed = True
        async with self._lock:
            await self._close()

    def _new(self) -> ZygoteProcess:
        return ZygoteProcess(self.scratch, self._sys_path, self._env)

    async def _load(self) -> dict[str, str]:
        missing = tuple(name for name in self._modules if name not in self._loaded)
        failed: dict[str, str] = {}
        if missing:
            self._loading = True
            # The spare was forked before these imports, so each of its trials would pay for them.
            await self._drop_spare()
            failed = await self._zygote.preload(missing)
            self._loading = False
            self._loaded.update(missing)
        self._fork_spare()
        return failed

    def _fork_spare(self) -> None:
        if self._spare is None:
            self._spare = asyncio.create_task(self._zygote.fork())

    async def _drop_spare(self) -> None:
        """End a spare that lacks the modules of the next import."""
        spare = self._spare
        self._spare = None
        if spare is not None:
            child = await spare
            child.kill(0.0)
            await child.wait()

    async def _close(self) -> None:
        spare = self._spare
        self._spare = None
        await self._zygote.close()
        if spare is not None:
            spare.cancel()
            with suppress(asyncio.CancelledError, InfraError):
                await spare


def started(cpus: int | None, *, forked: bool = False) -> tuple[WarmZygote, HeldFolder]:
    """The zygote of an agent with `cpus` cores, perhaps `forked` from this process, and its folder.

    Fork before any channel of gRPC exists in this process: its threads do not come along.
    """
    root = scratch_root()
    folder = hold("agent-held", root)
    warm = WarmZygote(folder.path, sys.path, resource_limits(cpus), SystemClock())
    warm.start(forked=forked)
    spawn(lambda: tidy(root))
    return warm, folder
