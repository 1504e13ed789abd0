"""The process of a board: TensorBoard on a socket that it inherits. It ends when its standard input does."""

import os
import select
import shutil
import socket
import sys
import threading
import types
from typing import Any

import msgspec

from sparktrain.board.board_settings import BoardSettings
from sparktrain.board.token_guard import App, TokenGuard
from sparktrain.process_tree import name_process
from sparktrain.threads import spawn

_LOOK_S = 1.0
_RELOAD_S = 3


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone; then remove the folder of events, and end."""
    name_process("sparktrain-tb")
    parent = os.getppid()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=BoardSettings)
    spawn(lambda: _end_with(parent, settings.folder), "sparktrain-board-end")
    _serve(settings)
    threading.Event().wait()


def _end_with(parent: int, folder: str) -> None:
    """End this process with its parent. TensorBoard's threads write nothing that would be lost."""
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_S)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            break
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


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
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        """Logs no requests: their addresses may hold the token."""

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """See base class."""

    class GuardedServer(base):  # type: ignore[misc] # its types are unknown
        """Serves on the inherited socket, behind the token."""

        def __init__(self, app: App, flags: object) -> None:
            guarded = TokenGuard(app, settings.token, f"sparktrain-board-{settings.port}")
            listening = socket.socket(fileno=settings.descriptor)
            host = listening.getsockname()[0]
            self._server = make_server(
                host, settings.port, guarded, threaded=True, request_handler=Quiet, fd=listening.detach()
            )

        def serve_forever(self) -> None:
            """See base class."""
            self._server.serve_forever()

        def get_url(self) -> str:
            """See base class."""
            return f"http://localhost:{settings.port}/"

    return GuardedServer


if __name__ == "__main__":
    main()
