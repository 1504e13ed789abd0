"""A store in S3 with requests that fail on the wire, or are refused."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import RunDirectoryError, StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.base import Store
from sparktrain.store.objects.bucket import PART_BYTES
from sparktrain.store.objects.object_store import OPEN_S, PROBE_S, ObjectStore
from sparktrain.store.objects.s3 import S3Bucket
from sparktrain.store.url import open_store
from tests.unit.clocks import InstantClock

pytestmark = pytest.mark.usefixtures("aws")

REFUSAL = "<Error><Code>{code}</Code><Message>no</Message></Error>"


def s3(endpoint: str, folder: str, timeout_s: float = 30) -> Store:
    return open_store(StoreAddress(f"s3://{folder}", settings(endpoint), timeout_s))


def settings(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "region": "us-east-1"}


@contextmanager
def soon() -> Iterator[None]:
    """The block takes at most what a store promises, and not a request's 60 s: a probe takes 4.5 s, and the first one
    also loads the client's library, for which a busy machine has 30 s."""
    began = monotonic()
    yield
    assert monotonic() - began < OPEN_S + PROBE_S


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that accepts connections, as its kernel does, and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An endpoint without a listener."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refusing() -> Iterator[Callable[[int, str], str]]:
    """Start an endpoint that refuses every request with an HTTP status and S3's error code."""
    servers = []

    def make(status: int, code: str) -> str:
        class Refusing(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                body = REFUSAL.format(code=code).encode()
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_DELETE = do_POST = do_PUT  # noqa: N815  # names of the standard library

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Refusing))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_put_if_absent_returns_true_to_the_creator_despite_lost_answers(s3_server: str) -> None:
    store = s3(s3_server, f"runs/lossy/{uuid4().hex}")
    assert store.put_if_absent("a", b"same") is True
    assert store.put_if_absent("a", b"same") is False
    assert store.read("a") == b"same"


def test_a_large_file_is_published_despite_lost_answers(s3_server: str) -> None:
    store = s3(s3_server, f"runs/lossy/{uuid4().hex}")
    file = store.create("model")
    data = bytes(range(256)) * (PART_BYTES // 256) + b"last part"
    file.write(data)
    file.publish()
    assert store.read("model") == data
    with pytest.raises(FileExistsError):
        store.create("model")


def test_a_writer_that_is_killed_leaves_nothing(s3_server: str) -> None:
    root = f"s3://runs/{uuid4().hex}"
    code = (
        "import os, sys\n"
        "from sparktrain.config.store_address import StoreAddress\n"
        "from sparktrain.store.objects.bucket import PART_BYTES\n"
        "from sparktrain.store.url import open_store\n"
        "store = open_store(StoreAddress(sys.argv[1], {'endpoint': sys.argv[2], 'region': 'us-east-1'}))\n"
        "model, log = store.create('model'), store.open_stream('log')\n"
        "model.write(bytes(PART_BYTES + 1))\n"
        "log.write(b'line')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, root, s3_server], timeout=60)
    assert done.returncode == -9
    store = s3(s3_server, root.removeprefix("s3://"))
    assert store.list() == []
    assert store.put_if_absent("model", b"another")


@pytest.mark.parametrize("call", ["put_if_absent", "read", "list", "delete", "exists"])
def test_an_endpoint_that_never_answers_ends_every_call(silent: str, call: str) -> None:
    store = s3(silent, "runs/x", timeout_s=1)
    arguments = {"put_if_absent": ("a", b""), "list": ()}.get(call, ("a",))
    with soon(), pytest.raises(StoreTimeoutError, match=r"127\.0\.0\.1:\d+ does not answer .*, for 1 s; check"):
        getattr(store, call)(*arguments)


def test_probe_reports_an_endpoint_that_never_answers(silent: str) -> None:
    with soon(), pytest.raises(RunDirectoryError, match=r"s3://runs/x cannot be used: .* does not answer"):
        s3(silent, "runs/x").probe()


def test_probe_reports_an_endpoint_without_a_listener(closed: str) -> None:
    with soon(), pytest.raises(RunDirectoryError, match=r"does not answer .*; check the endpoint"):
        s3(closed, "runs/x").probe()


def test_probe_reports_missing_credentials(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with soon(), pytest.raises(RunDirectoryError, match="no AWS credentials; set AWS_ACCESS_KEY_ID"):
        s3(s3_server, "runs/x").probe()


def test_credentials_that_are_set_after_a_failure_are_used(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"runs/{uuid4().hex}"
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(RunDirectoryError):
            s3(s3_server, folder).probe()
    s3(s3_server, folder).probe()


def test_probe_reports_a_missing_bucket(s3_server: str) -> None:
    with soon(), pytest.raises(RunDirectoryError, match="there is no such bucket; create it"):
        s3(s3_server, "none/x").probe()


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        (403, "AccessDenied", "access is denied; let these credentials"),
        (403, "SignatureDoesNotMatch", "the credentials are refused; renew"),
        (403, "RequestTimeTooSkewed", "clock is wrong"),
    ],
)
def test_probe_reports_a_refusal(refusing: Callable[[int, str], str], status: int, code: str, cause: str) -> None:
    endpoint = refusing(status, code)
    with soon(), pytest.raises(RunDirectoryError, match=cause):
        s3(endpoint, "runs/x").probe()
    with pytest.raises(StoreRefusedError, match=cause):
        s3(endpoint, "runs/x").read("a")


def test_an_unexpected_error_is_an_error_of_the_store(refusing: Callable[[int, str], str]) -> None:
    with pytest.raises(StoreError, match=r"a request fails: .*Unheard.*: no; check the bucket"):
        s3(refusing(400, "Unheard"), "runs/x").read("a")


def test_a_request_to_an_overloaded_service_is_retried(refusing: Callable[[int, str], str]) -> None:
    bucket, clock = S3Bucket("runs", settings(refusing(503, "SlowDown"))), InstantClock()
    with soon(), pytest.raises(StoreTimeoutError, match=r"the service fails \(SlowDown\)"):
        ObjectStore(bucket, "x", 60, clock=clock).put_if_absent("a", b"")
    assert len(clock.pauses) > 2


def test_probe_detects_a_service_that_ignores_conditions(s3_server: str) -> None:
    store = s3(s3_server, f"runs/lenient/{uuid4().hex}")
    with pytest.raises(RunDirectoryError, match="replaces objects though the request forbids it"):
        store.probe()
    assert store.list() == []


def test_the_address_carries_the_endpoint_to_executors(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    address = open_store("s3://runs/x").address
    assert address.settings == {"endpoint": s3_server, "region": "eu-west-3"}
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    open_store(address).probe()
    assert open_store("s3://runs/x").address.settings == {"region": "eu-west-3"}


def test_no_secret_is_shown(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = silent.replace("http://", "http://ann:canary@")
    store = s3(endpoint, "runs/x", timeout_s=1)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    with pytest.raises(StoreTimeoutError) as caught:
        store.read("a")
    texts = [str(caught.value), repr(store), store.where("a"), repr(caught.value.__cause__)]
    assert not any("canary" in text for text in texts)
