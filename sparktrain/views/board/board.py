"""TensorBoard over the event files of a run, in a process of its own that ends with this one."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from sparktrain.base.optional_packages import check_tensorboard
from sparktrain.base.threads import spawn
from sparktrain.errors import SpecError
from sparktrain.store.base import Store
from sparktrain.store.held_folders import HeldFolder, hold
from sparktrain.views.board.board_settings import BoardSettings
from sparktrain.views.board.event_mirror import EventMirror
from sparktrain.views.webserve.server_process import ServerProcess, listening_on

PORT_VARIABLE = "TENSORBOARD_PORT"
"""The environment variable with the port of a board, unless the caller names one."""

ExtraEvents = Callable[[Path, threading.Event], None]
"""Writes event files of its own beneath a folder until the event is set. Blocks, in a thread of its own."""


class Board(ServerProcess):
    """A TensorBoard that serves, with the thread that copies events for it."""

    module = "sparktrain.views.board"
    subject = "TensorBoard"

    def __init__(self, listening: socket.socket, host: str, events: HeldFolder, title: str) -> None:
        """Use `Board.start`."""
        super().__init__(BoardSettings(folder=str(events.path), title=title), listening, host)
        self._events = events

    @classmethod
    def start(
        cls,
        store: Store,
        folder: str,
        *,
        bind: str = "127.0.0.1",
        host: str = "localhost",
        port: int | None = None,
        feed: ExtraEvents | None = None,
    ) -> "Board":
        """Serve the event files beneath `folder` of `store`, such as the folder of a run. Returns within a second.

        A browser that comes earlier waits for TensorBoard's start, some 3 s. New events appear within some 10 s.

        Args:
            store: where the run is; it is read in a thread of this process.
            folder: the run's folder in it, or any other folder; empty for all of the store.
            bind: the address to listen on.
            host: the name of this machine in the URL.
            port: the port; by default that of the variable TENSORBOARD_PORT, or any free one.
            feed: writes more event files, such as those of the trials' reports.

        Raises:
            SpecError: the package tensorboard is missing, or the port cannot be had.
            OSError: the process cannot start.
        """
        check_tensorboard()
        with _listening(bind, port) as listening:
            # A killed driver removes nothing: a later one of its user on this host removes what is no longer held.
            events = hold("board")
            try:
                board = cls(listening, host, events, title=folder or store.where())
            except BaseException:
                events.close()
                raise
        mirror = EventMirror(store, folder, events.path)
        spawn(lambda: mirror.follow(board._over), "sparktrain-board-events")
        if feed is not None:
            spawn(lambda: feed(events.path, board._over), "sparktrain-board-feed")
        return board

    def close(self) -> None:
        """End the process and remove the copied events. Blocks for 5 s at most; a second call does nothing."""
        super().close()
        self._events.close()


def _listening(bind: str, port: int | None) -> socket.socket:
    """A socket that listens on `port`, or on that of the environment. Raises SpecError."""
    if port is not None:
        return listening_on(bind, port, "port")
    value = os.environ.get(PORT_VARIABLE, "").strip()
    if value and not value.isdecimal():
        raise SpecError(f"{PORT_VARIABLE} ({value!r}) must be a port below 65536, or 0 for any free one")
    return listening_on(bind, int(value or 0), PORT_VARIABLE if value else "port")
