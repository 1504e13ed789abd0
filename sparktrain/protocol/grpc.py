"""The transport of real runs: gRPC over mutual TLS, one connection per agent.

Two methods, both streams of bytes in both directions, without generated code: `Attend` carries one encoded message in
each gRPC message; `Upload` carries an encoded header, chunks, and an empty message that marks the end of the file.
gRPC cannot distinguish a lost sender from one that has finished, so both methods end with an explicit message.

A `Gate` owns the coordinator's port, and limits unauthenticated peers; it forwards the TLS of each unread.

gRPC prints a line to stderr for each connection that it refuses. Only `GRPC_VERBOSITY=NONE` in the environment, set
before `grpc` is imported first in the process, prevents that.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

from sparktrain.base.backoff import Backoff
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import aside
from sparktrain.errors import ProtocolError
from sparktrain.protocol import codec
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle
from sparktrain.protocol.gate import Gate, listen
from sparktrain.protocol.grpc_link import FAILURES, LOST, GrpcLink, Options, ServerStream, common_options
from sparktrain.protocol.grpc_without_fork_handlers import aio, grpc
from sparktrain.protocol.link_rules import AGENT_SPEECH, COORDINATOR_SPEECH, Closing, Refusal
from sparktrain.protocol.messages import UploadDone, UploadHeader
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import (
    CHUNK_BYTES,
    FLUSH_S,
    Dialer,
    IncomingUpload,
    Limits,
    Link,
    LinkClosedError,
    Listener,
    ListenError,
    OnLink,
    OnUpload,
    Unreachable,
    UploadRefusedError,
    closed,
    forget,
    outcome,
    pieces,
    race,
    serve,
)

# gRPC's texts for the causes: (part of the text, cause, whether another attempt cannot succeed).
_REFUSED = "connection refused: nothing listens there"
_CAUSES = (
    ("Connection refused", _REFUSED, False),
    ("errors resolving", "name not resolved", False),
    ("DNS resolution failed", "name not resolved", False),
    ("handshake failed", "TLS refused: what listens there is not the coordinator of this run", True),
    ("verification check failed", "TLS refused: what listens there is not the coordinator of this run", True),
    ("Socket closed", "connection closed before it was secured: TLS refused, or no coordinator there", False),
)


class AttemptError(Exception):
    """One address did not answer."""

    def __init__(self, cause: str, final: bool) -> None:
        super().__init__(cause)
        self.final = final
        """Another attempt cannot succeed."""
        self.refused = final or cause.startswith(_REFUSED)
        """Another process than the coordinator answered, or the host refused the connection."""


def failed(code: grpc.StatusCode, details: str) -> AttemptError:
    """The error that the end of an attempt means."""
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return AttemptError(f"speaks another version of the protocol than ours, {codec.VERSION}", final=True)
    for mark, cause, final in _CAUSES:
        if mark in details:
            return AttemptError(f"{cause} ({details})", final)
    return AttemptError(details, final=False)


T = TypeVar("T")

DEAD_AFTER_S = 30.0
"""A host that no longer answers is detected after so long."""

HANDSHAKE_S = 5.0
"""A connection that has not authenticated after so long is closed."""

_SERVICE = f"sparktrain.v{codec.VERSION}.Coordinator"
_ATTEND = f"/{_SERVICE}/Attend"
_UPLOAD = f"/{_SERVICE}/Upload"

_STREAMS_PER_AGENT = 64
_UNLIMITED = 2**31 - 1
_TRY_S = 5.0
_PAUSE_S = 0.05
_PAUSE_AT_MOST_S = 1.0
_ACCEPTED = (("sparktrain", "accepted"),)
_CLOSING = "the coordinator is closing"


# ---- the coordinator's side


class GrpcListener(Listener):
    """See base class. Binds exactly `host`; takes the first port of `ports` that is free, where 0 means any."""

    def __init__(
        self,
        host: str,
        ports: Sequence[int],
        certificates: CertificateBundle,
        limits: Limits | None = None,
        dead_after_s: float = DEAD_AFTER_S,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._host = host
        self._ports = ports
        self._certificates = certificates
        self._limits = limits or Limits()
        self._dead_after_s = dead_after_s
        self._handshake_s = handshake_s
        self._renewed: Any = None
        """Certificates that gRPC has not asked for yet."""
        self._server: Any = None
        self._gate: Gate | None = None
        self._closing = False
        self._links: set[GrpcLink] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, on_link: OnLink, on_upload: OnUpload) -> tuple[str, int]:
        """See base class."""
        self._on_link = on_link
        self._on_upload = on_upload
        self._server = aio.server(options=self._options(), compression=grpc.Compression.NoCompression)
        methods = {
            "Attend": grpc.stream_stream_rpc_method_handler(self._attend),
            "Upload": grpc.stream_stream_rpc_method_handler(self._upload),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        listening = self._bind()
        port = int(listening[0].getsockname()[1])
        self._gate = Gate(listening, 2 * self._handshake_s)
        self._server.add_secure_port(f"unix:{self._gate.target}", self._credentials())
        # The server listens before the gate opens, for the gate connects the first peer at once.
        await self._server.start()
        self._gate.open()
        return self._host, port

    def renew(self, certificates: CertificateBundle) -> None:
        """See base class."""
        self._certificates = certificates
        self._renewed = _configuration(certificates)

    async def close(self, grace_s: float) -> None:
        """See base class."""
        if self._server is None:
            return
        self._closing = True
        await asyncio.gather(*(link.close(_CLOSING) for link in tuple(self._links)))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._server.stop(FLUSH_S)
        if self._gate is not None:
            await aside(self._gate.close, "sparktrain-gate")

    def _options(self) -> Options:
        return [
            *common_options(self._dead_after_s, AGENT_SPEECH, COORDINATOR_SPEECH),
            ("grpc.server_handshake_timeout_ms", int(self._handshake_s * 1000)),
            ("grpc.max_concurrent_streams", _STREAMS_PER_AGENT),
            # Else gRPC refuses calls by chance where more than 1,000 wait to be accepted, and all that wait for 30 s.
            # Only agents of this run get here, each with a limited number of calls.
            ("grpc.server.max_pending_requests", _UNLIMITED),
            ("grpc.server.max_pending_requests_hard_limit", _UNLIMITED),
            ("grpc.server_max_unrequested_time_in_server", _UNLIMITED),
            # Else it refuses a call when ended calls that Python still refers to make too many.
            ("grpc.http.overload_protection", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.http2.max_ping_strikes", 0),
        ]

    def _credentials(self) -> Any:
        def renewed() -> Any:
            """Called by gRPC's threads before each handshake; None where nothing has changed."""
            configuration = self._renewed
            self._renewed = None
            return configuration

        first = _configuration(self._certificates)
        return grpc.dynamic_ssl_server_credentials(first, renewed, require_client_authentication=True)

    def _bind(self) -> list[socket.socket]:
        causes: list[str] = []
        for port in self._ports:
            try:
                return listen(self._host, port)
            except OSError as error:
                causes.append(f"port {port}: {error}")
        raise ListenError(
            f"cannot listen on {self._host}: {'; '.join(causes[:5]) or 'no port was given'}. "
            "Set an address of this host, and a port that is free or a wider range of them"
        )

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _admit(self, context: Any) -> str:
        """The address of an authenticated peer, for gRPC calls back for no other peer."""
        assert self._gate is not None
        return self._gate.admit(unquote(context.peer()))

    async def _attend(self, _: object, context: Any) -> None:
        if self._closing:
            await context.abort(grpc.StatusCode.ABORTED, _CLOSING)
        stream = ServerStream(context)
        link = GrpcLink(self._admit(context), AGENT_SPEECH, self._limits, stream)
        # The dialer waits for this: it confirms that its certificate was accepted.
        await context.send_initial_metadata(_ACCEPTED)
        self._links.add(link)
        self._spawn(serve(link, self._on_link))
        try:
            await link.run()
        finally:
            stream.end()
            self._links.discard(link)
        if link.cut:
            context.set_code(grpc.StatusCode.ABORTED)
            context.set_details(link.why)

    async def _upload(self, _: object, context: Any) -> None:
        if self._closing:
            await context.abort(grpc.StatusCode.ABORTED, _CLOSING)
        stream = ServerStream(context)
        incoming = IncomingUpload(self._admit(context))
        try:
            header = await stream.read()
            if self._closing:  # `close` cancels only the uploads that had started: it would wait in vain for this one
                await stream.write(codec.encode(Closing(_CLOSING)))
                return
            feeder = self._spawn(_feed(incoming, stream))
            answer = await self._store(incoming, b"" if header is aio.EOF else header)
            await stream.write(codec.encode(answer))
            # Until the sender has stopped: when a call ends below a write, gRPC drops the answer at the sender's side.
            await asyncio.wait({feeder}, timeout=FLUSH_S)
        finally:
            stream.end()
            incoming.lose(LOST)

    async def _store(self, incoming: IncomingUpload, header: bytes) -> UploadDone | Refusal | Closing:
        try:
            stored = self._spawn(incoming.store(codec.decode(header, UploadHeader), self._on_upload))
            stored.add_done_callback(forget)
            # Shielded: when gRPC cancels this call, `on_upload` must end by the error that its chunks raise.
            return await outcome(asyncio.shield(stored), LinkClosedError(_CLOSING))
        except ProtocolError as error:
            return Refusal(f"ProtocolError: {error}")
        except UploadRefusedError as error:
            return Refusal(str(error))
        except LinkClosedError as error:
            return Closing(str(error))


def _configuration(bundle: CertificateBundle) -> Any:
    return grpc.ssl_server_certificate_configuration([(bundle.key, bundle.certificate)], bundle.authority)


async def _feed(incoming: IncomingUpload, stream: ServerStream) -> None:
    try:
        while (chunk := await stream.read()) is not aio.EOF:
            if len(chunk) > CHUNK_BYTES:
                incoming.lose(f"ProtocolError: chunk of {len(chunk):,} bytes is larger than {CHUNK_BYTES:,} bytes")
            await incoming.add(chunk)
    except FAILURES:
        pass
    incoming.lose(LOST)


# ---- the agent's side


class GrpcDialer(Dialer):
    """See base class. Tries the ticket's hosts in their order, repeatedly until the deadline."""

    def __init__(
        self,
        ticket: AgentTicket,
        limits: Limits | None = None,
        dead_after_s: float = DEAD_AFTER_S,
        clock: Clock | None = None,
    ) -> None:
        self._ticket = ticket
        self._certificates = ticket.certificates
        self._limits = limits or Limits()
        self._dead_after_s = dead_after_s
        self._clock = clock or SystemClock()
        self._peer = ""
        self._channel: Any = None
        self._carrier: asyncio.Task[None] | None = None
        self._calls: set[Any] = set()
        self._link: GrpcLink | None = None

    async def attend(self, deadline_s: float) -> Link:
        """See base class."""
        await self.close()
        causes: dict[str, AttemptError] = {}
        try:
            async with asyncio.timeout(deadline_s):
                call = await self._find(causes, min(_TRY_S, deadline_s / max(1, len(self._ticket.hosts))))
        except TimeoutError:
            call = None
        if call is None:
            refused = bool(causes) and all(cause.refused for cause in causes.values())
            raise Unreachable(self._unreachable(causes, deadline_s), refused)
        self._link = GrpcLink(self._peer, COORDINATOR_SPEECH, self._limits, call)
        self._carrier = asyncio.create_task(_carry(self._link, call), name=f"link to {self._peer}")
        return self._link

    def renew(self, certificates: CertificateBundle) -> None:
        """See base class."""
        self._certificates = certificates

    async def upload(self, header: UploadHeader, chunks: AsyncIterator[bytes]) -> UploadDone:
        """See base class."""
        if self._channel is None:
            raise LinkClosedError("the coordinator cannot take an upload: not connected to it")
        call = self._channel.stream_stream(_UPLOAD)(wait_for_ready=False)
        self._calls.add(call)
        try:
            reading = asyncio.create_task(_answer(call))
            data = await race(_send(call, header, chunks), reading, closed(self._peer, "closed here"))
        finally:
            self._calls.discard(call)
            call.cancel()
        answer = Closing(await call.details()) if data is None else codec.decode(data, UploadDone | Refusal | Closing)
        if isinstance(answer, Refusal):
            raise UploadRefusedError(answer.reason)
        if isinstance(answer, Closing):
            raise LinkClosedError(f"the upload of {header.name} to {self._peer} was cut off: {answer.reason}")
        receipt: UploadDone = answer
        return receipt

    async def close(self) -> None:
        """See base class."""
        if self._link is not None:
            await self._link.close()
        if self._carrier is not None:
            await self._carrier
        # Not left to the channel: up to gRPC 1.80, its end does not end every call.
        for call in self._calls:
            call.cancel()
        if self._channel is not None:
            await self._channel.close()
        self._link = self._carrier = self._channel = None

    async def _find(self, causes: dict[str, AttemptError], limit_s: float) -> Any:
        hosts = list(self._ticket.hosts)
        backoff = Backoff(_PAUSE_S, _PAUSE_AT_MOST_S, jitter=(0.5, 1.5))
        while hosts:
            for host in tuple(hosts):
                causes.setdefault(host, AttemptError("no answer before the deadline", final=False))
                try:
                    return await self._try(host, limit_s)
                except AttemptError as error:
                    causes[host] = error
                    # An address where something else listens, or another version, stays wrong for as long as the run.
                    if error.final:
                        hosts.remove(host)
            if hosts:
                # The gate accepts few of many peers that connect at the same time: the others retry one by one.
                await self._clock.sleep(backoff.next_s())
        return None

    async def _try(self, host: str, limit_s: float) -> Any:
        channel = self._open(host)
        try:
            call = channel.stream_stream(_ATTEND)(wait_for_ready=False)
            async with asyncio.timeout(limit_s):
                # A call that failed has metadata too: none.
                if _ACCEPTED[0] not in tuple(await call.initial_metadata()):
                    raise failed(await call.code(), await call.details())
        except TimeoutError:
            await channel.close()
            raise AttemptError(f"no answer within {limit_s:g} s", final=False) from None
        except BaseException:
            await channel.close()
            raise
        self._channel = channel
        self._peer = _target(host, self._ticket.port)
        return call

    def _open(self, host: str) -> Any:
        bundle = self._certificates
        credentials = grpc.ssl_channel_credentials(bundle.authority, bundle.key, bundle.certificate)
        options: Options = [
            *common_options(self._dead_after_s, COORDINATOR_SPEECH, AGENT_SPEECH),
            ("grpc.ssl_target_name_override", SERVER_NAME),
            ("grpc.use_local_subchannel_pool", 1),
            # An `http_proxy` in an executor's environment is for hosts outside the cluster.
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
        ]
        target = _target(host, self._ticket.port)
        return aio.secure_channel(target, credentials, options, compression=grpc.Compression.NoCompression)

    def _unreachable(self, causes: dict[str, AttemptError], deadline_s: float) -> str:
        shown = {host: str(causes.get(host, "not tried before the deadline")) for host in self._ticket.hosts}
        tried = "; ".join(f"{host}: {cause}" for host, cause in shown.items())
        return (
            f"no coordinator of pool {self._ticket.pool} answered on port {self._ticket.port} within {deadline_s:g} s: "
            f"{tried}. Check that the driver still runs, that its host name or spark.driver.host is one that executors "
            "reach, and that no firewall closes the port"
        )


async def _send(call: Any, header: UploadHeader, chunks: AsyncIterator[bytes]) -> None:
    if not await _written(call, codec.encode(header)):
        return
    async for chunk in chunks:
        for piece in pieces(chunk):
            if not await _written(call, piece):
                return
    if await _written(call, b""):
        await call.done_writing()


async def _written(call: Any, data: bytes) -> bool:
    """Send `data`; False when the call has ended: its answer or status has the reason."""
    try:
        await call.write(data)
    except FAILURES:
        return False
    return True


async def _answer(call: Any) -> bytes | None:
    """The coordinator's answer; None when the call's status has the reason that there is none."""
    try:
        data = await call.read()
    except FAILURES:
        return None
    return None if data is aio.EOF else bytes(data)


async def _carry(link: GrpcLink, call: Any) -> None:
    try:
        await link.run()
    finally:
        call.cancel()


def _target(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
