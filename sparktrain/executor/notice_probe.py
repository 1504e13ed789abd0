"""Looks for the notice that this host will be lost, at the file or URL that `notice` names.

A notice is a file that exists, or an answer with status 200 and content. There is none yet where the file is absent,
at status 204 and 404, and where the content is empty, `false`, `none`, `null`, `0`, `[]` or `{}`, or a JSON object
with an empty list `Events`. Anything else cannot be read, such as another status, a redirect, a page of HTML, or no
answer within a second: that is counted, reported and ignored, because a wrong notice would stop the training.
"""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from sparktrain.base.clock import Clock

NOTICE_S = 2.0
"""Interval between two looks."""
ANSWER_TIMEOUT_S = 1.0
MOST_BYTES = 64 * 2**10
"""The most bytes of an answer that are read."""
_NONE_YET = frozenset({b"", b"false", b"none", b"null", b"0", b"[]", b"{}"})
_METADATA = {"Metadata-Flavor": "Google", "Metadata": "true"}
"""Headers that the clouds want with each request for metadata, and others ignore."""
_TOKEN_PATH = "/latest/api/token"
_TOKEN_LIFE = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}


class UnreadableNoticeError(Exception):
    """Why the file or the URL cannot be read, in one line."""


class NoticeProbe:
    """The looks of one agent at one address. All methods belong to the agent's event loop."""

    def __init__(
        self, address: str, clock: Clock, announce: Callable[[str], None], fail: Callable[[int, str], None]
    ) -> None:
        """`announce` gets a notice, once. `fail` gets the number of looks that have failed, and why, when this is the
        first one, the 10th, the 100th and so on."""
        self.address = address
        self._clock = clock
        self._announce = announce
        self._fail = fail
        self._failed = 0

    async def watch(self) -> None:
        """Look until there is a notice."""
        while not await self.look():
            await self._clock.sleep(NOTICE_S)

    async def look(self) -> bool:
        """Look once, within about a second; whether there is a notice, which is announced."""
        try:
            notice = await asyncio.to_thread(notice_at, self.address)
        except UnreadableNoticeError as error:
            self._failed += 1
            if str(self._failed).rstrip("0") == "1":
                self._fail(self._failed, str(error))
            return False
        if notice:
            self._announce(notice)
        return bool(notice)


def notice_at(address: str) -> str:
    """The notice at a file or URL, in a few words; empty without one. Blocks for about a second at most.

    Raises UnreadableNoticeError.
    """
    if "://" in address:
        return f"{address} announces it" if _is_notice(_content(address)) else ""
    try:
        os.stat(address)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnreadableNoticeError(f"{address}: {error.strerror or error}") from error
    return f"{address} exists"


def _content(address: str) -> bytes:
    """The content of the answer; empty where there is none yet. Raises UnreadableNoticeError."""
    headers = _METADATA if _is_link_local(address) else {}
    try:
        try:
            return _answer(address, headers)
        except HTTPError as error:
            if error.code != 401 or not headers:
                raise
        # Instances of EC2 answer to those alone who fetch a token first.
        token = _answer(_sibling(address, _TOKEN_PATH), _TOKEN_LIFE, "PUT").decode("latin-1").strip()
        return _answer(address, {"X-aws-ec2-metadata-token": token})
    except HTTPError as error:
        if error.code == 404:
            return b""
        raise UnreadableNoticeError(f"{address} answers with status {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise UnreadableNoticeError(f"{address} does not answer: {getattr(error, 'reason', None) or error}") from error


def _answer(address: str, headers: dict[str, str], method: str = "GET") -> bytes:
    request = Request(address, headers=headers, method=method)
    # No proxy: metadata are those of this host, and a proxy would answer for its own.
    with build_opener(ProxyHandler({}), _NoRedirects()).open(request, timeout=ANSWER_TIMEOUT_S) as answer:
        if answer.status not in (200, 204):
            raise HTTPException(f"it answers with status {answer.status}")
        if "html" in str(answer.headers.get("Content-Type", "")).lower():
            raise HTTPException("it answers with a page of HTML, which is no notice")
        return bytes(answer.read(MOST_BYTES))


def _is_notice(content: bytes) -> bool:
    stripped = content.strip()
    if stripped.lower() in _NONE_YET:
        return False
    try:
        document = json.loads(stripped)
    except ValueError:
        return True
    return not (isinstance(document, dict) and document.get("Events") == [])


def _sibling(address: str, path: str) -> str:
    scheme, _, location = address.partition("://")
    return f"{scheme}://{location.partition('/')[0]}{path}"


def _is_link_local(address: str) -> bool:
    """Whether a URL is one of the host's link, as those of a cloud's metadata are."""
    try:
        return ip_address(urlsplit(address).hostname or "").is_link_local
    except ValueError:
        return False


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *words: Any, **named: Any) -> NoReturn:
        raise HTTPException("it redirects to another address, which is not followed")


class HostNotices:
    """The probes of one agent, by address. All methods belong to the agent's event loop.

    Each run of a pool names its own address, and an agent serves several runs in turn. A notice concerns the host, so
    an agent looks at those of all runs that are on: whichever of them has a notice announces the loss to all.
    """

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
