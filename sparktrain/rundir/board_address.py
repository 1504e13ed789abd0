"""Where a driver serves TensorBoard of its run: a file of the run directory, as long as it does."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import msgspec

from sparktrain.base.decoding import from_json
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store

logger = logging.getLogger("sparktrain")


class BoardAddress(msgspec.Struct, frozen=True):
    """The URL of a board, and the driver that serves it: its file outlives a driver that is killed."""

    url: str
    """With its token: it opens what the run directory holds to those who can read that."""
    host: str
    pid: int


@contextmanager
def announced(store: Store, layout: RunLayout, url: str) -> Iterator[None]:
    """Have a file with `url` in the run directory. Blocks on the store; raises OSError when it cannot be written."""
    path = f"{layout.boards}/{uuid4().hex[:8]}.json"
    store.put_if_absent(path, msgspec.json.encode(BoardAddress(url, socket.gethostname(), os.getpid())))
    try:
        yield
    finally:
        try:
            store.delete(path)
        except OSError as error:
            logger.debug("%s stays: %s", store.where(path), error)


def find_board(store: Store, layout: RunLayout, host: str, pid: int) -> str | None:
    """The URL of the board that this driver serves; None without one. Blocks on the store. Raises OSError."""
    for name in store.entries(layout.boards):
        try:
            address = from_json(store.read(f"{layout.boards}/{name}"), BoardAddress)
        except (FileNotFoundError, msgspec.MsgspecError):  # it is gone, or of another version
            continue
        if (address.host, address.pid) == (host, pid):
            return address.url
    return None
