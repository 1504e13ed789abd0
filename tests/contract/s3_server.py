"""An S3 on this machine, in a separate process: moto, which answers as S3 does, with additions.

moto looks for an object and creates it in two steps, so that of two requests at once both may find none: here one
request is served after the other. A key with `/lenient/` in it is served without conditions, as old services do, and
the first answer to each request that writes beneath `/lossy/` is lost: it takes effect, and the connection is closed.

The first word of its command line is the address to listen on. A file that the second word names gets a line for each
request: the method, the path and the range. Prints its port, and ends when its standard input does.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from socket import SHUT_RDWR
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

Environ = dict[str, Any]


class OneByOne:
    """A WSGI application that serves one request at a time."""

    def __init__(self, application: Callable[[Environ, Any], Iterable[bytes]], log: str | None = None) -> None:
        self._application = application
        self._log = log
        self._turn = threading.Lock()
        self._lost: set[str] = set()

    def __call__(self, environ: Environ, start_response: Any) -> list[bytes]:
        if "/lenient/" in environ["PATH_INFO"]:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._turn:
            if self._log is not None:
                with open(self._log, "a") as file:
                    request = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE", "whole"))
                    file.write(" ".join(request) + "\n")
            answer = list(self._application(environ, start_response))
            loses = self._loses(environ)
        if loses:
            environ["werkzeug.socket"].shutdown(SHUT_RDWR)
        return answer

    def _loses(self, environ: Environ) -> bool:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if "/lossy/" not in request or environ["REQUEST_METHOD"] not in ("PUT", "POST") or request in self._lost:
            return False
        self._lost.add(request)
        return True


def main() -> None:
    host, *log = sys.argv[1:]
    application = OneByOne(DomainDispatcherApplication(create_backend_app), *log)
    server = make_server(host, 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
