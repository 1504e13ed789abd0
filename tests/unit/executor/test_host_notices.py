"""An agent that serves several runs looks at the notices of all of them, and of no run that is over."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sparktrain.executor.notice_probe import NOTICE_S, HostNotices
from tests.unit.clocks import HandClock


class Host:
    """What an agent does with notices."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.announced: asyncio.Queue[str] = asyncio.Queue()
        self.failed: list[tuple[str, int]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.notices = HostNotices(
            self.clock,
            self.announced.put_nowait,
            lambda address, looks, problem: self.failed.append((address, looks)),
            self._spawn,
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[Any]":
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    @property
    def looking(self) -> int:
        """How many addresses it looks at."""
        return sum(not task.done() for task in self.tasks)


@asynccontextmanager
async def host() -> AsyncIterator[Host]:
    """A host; its looks end with the test."""
    opened = Host()
    yield opened
    for task in opened.tasks:
        task.cancel()
    await asyncio.gather(*opened.tasks, return_exceptions=True)


async def test_each_of_two_runs_has_its_notice(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    async with host() as agent:
        await agent.notices.watch([first])
        await agent.notices.watch([first, second])
        await asyncio.to_thread(Path(first).touch)
        async with asyncio.timeout(10.0):
            while agent.announced.empty():
                await agent.clock.advance(NOTICE_S)
                await asyncio.sleep(0.001)
        assert agent.announced.get_nowait() == f"{first} exists", "the run that came first keeps its notice"
        assert agent.notices.addresses == [first, second]


async def test_a_notice_that_is_there_is_announced_before_the_run_can_start(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.touch()
    async with host() as agent:
        await agent.notices.watch([str(first)])
        await agent.notices.watch([str(first), str(second), str(second)])
        assert agent.announced.get_nowait() == f"{second} exists"
        assert agent.announced.empty()


async def test_the_notice_of_a_run_that_is_over_counts_no_more(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    async with host() as agent:
        await agent.notices.watch([first])
        await agent.notices.watch([second])
        await asyncio.gather(agent.tasks[0], return_exceptions=True)
        assert agent.notices.addresses == [second]
        assert agent.looking == 1
        await agent.notices.watch([])
        await asyncio.gather(*agent.tasks, return_exceptions=True)
        assert agent.notices.addresses == []
        assert agent.looking == 0


async def test_a_failed_look_names_its_address(tmp_path: Path) -> None:
    long_name = str(tmp_path / ("x" * 300))
    async with host() as agent:
        await agent.notices.watch([str(tmp_path / "first"), long_name])
        assert agent.failed[0] == (long_name, 1)
