"""A process that answers as S3 does, for tests: see `tests/contract/s3_server.py`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

SERVER = Path(__file__).parents[1] / "contract" / "s3_server.py"


@contextmanager
def s3_server(log: Path | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """The endpoint of an S3 with a bucket `runs`, on an address of this machine; `log` gets a line for each request."""
    command = [sys.executable, str(SERVER), host, *([] if log is None else [str(log)])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout
        try:
            endpoint = f"http://{host}:{int(server.stdout.readline())}"
            urlopen(Request(f"{endpoint}/runs", method="PUT"), timeout=30).close()
            yield endpoint
        finally:
            server.kill()
