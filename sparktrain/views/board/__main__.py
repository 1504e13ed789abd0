"""The process of a board: TensorBoard on a socket that it inherits. It ends when its standard input does."""

import sys
import threading
import types
from pathlib import Path
from typing import Any

from sparktrain.store.folder_removal import remove
from sparktrain.views.board.board_settings import BoardSettings
from sparktrain.views.webserve.server_process import ServerEndpoint
from sparktrain.views.webserve.serving import guarded_server, start_serving
from sparktrain.views.webserve.token_guard import App

_RELOAD_S = 3


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone; then remove the folder of events, and end."""
    endpoint, settings = start_serving("sparktrain-tb", BoardSettings, lambda settings: remove(Path(settings.folder)))
    # With this module TensorBoard reads files without TensorFlow, which takes seconds and memory to import.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    from tensorboard import program

    board = program.TensorBoard(server_class=_server_class(program.TensorBoardServer, endpoint))
    board.configure(
        logdir=settings.folder,
        reload_interval=_RELOAD_S,
        reload_multifile=True,  # a folder may have several files that grow
        load_fast="false",  # its other reader is a server on a port without a token
        window_title=settings.title,
    )
    board.launch()
    # TensorBoard serves in a daemon thread, which would end with this one.
    threading.Event().wait()


def _server_class(base: Any, endpoint: ServerEndpoint) -> type:
    """A server for TensorBoard's application."""

    # A proxy before TensorBoard's own server would leave the port of that open to other users of the host.
    class GuardedServer(base):  # type: ignore[misc] # its types are unknown
        """Serves on the inherited socket, behind the token."""

        def __init__(self, app: App, flags: object) -> None:
            self._server = guarded_server(endpoint, app, "sparktrain-board", "TensorBoard")

        def serve_forever(self) -> None:
            """See base class."""
            self._server.serve_forever()

        def get_url(self) -> str:
            """See base class."""
            return f"http://localhost:{endpoint.port}/"

    return GuardedServer


if __name__ == "__main__":
    main()
