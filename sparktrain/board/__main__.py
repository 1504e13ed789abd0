"""The process of a board: TensorBoard on a socket that it inherits. It ends when its standard input does."""

import os
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

import msgspec

from sparktrain.board.board_settings import BoardSettings
from sparktrain.process_tree import name_process
from sparktrain.store.folder_removal import remove
from sparktrain.threads import spawn
from sparktrain.webserve.reader_limit import ReaderLimit
from sparktrain.webserve.server_process import end_with
from sparktrain.webserve.token_guard import App, TokenGuard
from sparktrain.webserve.web_server import WebServer

_RELOAD_S = 3


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone; then remove the folder of events, and end."""
    name_process("sparktrain-tb")
    parent = os.getppid()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=BoardSettings)
    spawn(lambda: end_with(parent, lambda: remove(Path(settings.folder))), "sparktrain-board-end")
    _serve(settings)
    threading.Event().wait()


def _serve(settings: BoardSettings) -> None:
    """Start TensorBoard in threads, with no port but the inherited one, which is behind the token."""
    # With this module TensorBoard reads files without TensorFlow, which takes seconds and memory to import.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    from tensorboard import program

    server = _server_class(program.TensorBoardServer, settings)
    board = program.TensorBoard(server_class=server)
    board.configure(
        logdir=settings.folder,
        reload_interval=_RELOAD_S,
        reload_multifile=True,  # a folder may have several files that grow
        load_fast="false",  # its other reader is a server on a port without a token
        window_title=settings.title,
    )
    board.launch()


def _server_class(base: Any, settings: BoardSettings) -> type:
    """A server for TensorBoard's application."""

    class GuardedServer(base):  # type: ignore[misc] # its types are unknown
        """Serves on the inherited socket, behind the token."""

        def __init__(self, app: App, flags: object) -> None:
            guarded = TokenGuard(ReaderLimit(app), settings.token, f"sparktrain-board-{settings.port}")
            self._server = WebServer(socket.socket(fileno=settings.descriptor), guarded)

        def serve_forever(self) -> None:
            """See base class."""
            self._server.serve_forever()

        def get_url(self) -> str:
            """See base class."""
            return f"http://localhost:{settings.port}/"

    return GuardedServer


if __name__ == "__main__":
    main()
