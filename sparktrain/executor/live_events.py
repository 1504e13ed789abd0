"""Uploads TensorBoard's event files of a member, and the times of its steps, while it appends to them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from sparktrain.executor.left_files import find, open_regular
from sparktrain.executor.upload_queue import CHUNK_BYTES, Storing
from sparktrain.rundir.event_files import is_events
from sparktrain.rundir.layout import STEPS

LOOK_S = 5.0
"""Time between two looks at the files of a member that runs."""
AT_ONCE = 16
"""Most event files of one member that are uploaded while it runs; the others follow at its end."""


class LiveEvents:
    """The files of one member that grow. One use; all methods belong to the agent's event loop."""

    def __init__(self, storing: Storing, home: Path, over: asyncio.Event, look_s: float = LOOK_S) -> None:
        """`over` is set when the member has ended; `home` has its folder `files`."""
        self._storing = storing
        self._home = home
        self._over = over
        self._look_s = look_s
        self._uploads: dict[Path, asyncio.Task[None]] = {}

    async def follow(self) -> None:
        """Upload what the member appends, until it has ended and all of that is stored. Raises nothing."""
        try:
            while not await self._over_within():
                for path in await asyncio.to_thread(self._growing_files):
                    if path not in self._uploads and len(self._uploads) < AT_ONCE:
                        self._uploads[path] = asyncio.create_task(self._upload(path))
            await asyncio.gather(*self._uploads.values())
        finally:
            for upload in self._uploads.values():
                upload.cancel()

    def _growing_files(self) -> list[Path]:
        """The steps and the event files, with content. Blocks on local disk."""
        events = (path for path in find(self._home / "files").files if is_events(path.name))
        return [path for path in (self._home / STEPS, *events) if _size(path)]

    async def _upload(self, path: Path) -> None:
        name = path.relative_to(self._home).as_posix()
        await self._storing.bring(name, partial(self._appended, path), grows=True)

    async def _appended(self, path: Path) -> AsyncIterator[bytes]:
        """What the file has, and what is appended to it. Raises OSError for one that another file has replaced."""
        with await asyncio.to_thread(open_regular, path) as file:
            while True:
                over = self._over.is_set()  # before the read, so that the end is the end
                if chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                    yield chunk
                elif over:
                    break
                else:
                    await self._over_within()
            with suppress(FileNotFoundError):  # the function has removed it
                if os.lstat(path).st_ino != os.fstat(file.fileno()).st_ino:
                    raise OSError("another file has replaced it while it was uploaded, and is not stored")

    async def _over_within(self) -> bool:
        """Wait for the end of the member, at most until the next look; whether it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._look_s):
                await self._over.wait()
        return self._over.is_set()


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
