"""Messages over a Unix socket pair: four bytes of length, big-endian, then the bytes of the codec.

Agents use `AsyncPipe` on their event loop; a zygote and its members, which have no loop, use `BlockingPipe`.
"""

import asyncio
import os
import socket
import struct
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from sparktrain.errors import ProtocolError
from sparktrain.protocol.codec import decode, encode
from sparktrain.state.message import MAX_MESSAGE_BYTES, Message

UNREACHABLE_STATUS = 113
"""Exit status of a member that had an outcome but could not send it: something closed its end of the pipe."""

T = TypeVar("T")

_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 64 * 1024
_MAX_FDS = 16


def frame(message: Message) -> bytes:
    """`message` as bytes. Raises ProtocolError when it is too large to be received."""
    data = encode(message)
    limit = message.most_bytes
    if len(data) > limit:
        raise ProtocolError(f"{type(message).__name__} has {len(data)} bytes; the limit is {limit}")
    return _LENGTH.pack(len(data)) + data


class FrameBuffer:
    """Finds messages in a stream of bytes that comes in arbitrary pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes. Raises ProtocolError for a length that no message has."""
        self._bytes += data
        messages: list[bytes] = []
        start = 0
        while len(self._bytes) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._bytes, start)
            # Look at the length before anything is allocated: a training function may write to its pipe.
            if size > MAX_MESSAGE_BYTES:
                raise ProtocolError(f"a message of {size} bytes was announced; the limit is {MAX_MESSAGE_BYTES}")
            end = start + _LENGTH.size + size
            if len(self._bytes) < end:
                break
            messages.append(bytes(self._bytes[start + _LENGTH.size : end]))
            start = end
        del self._bytes[:start]
        return messages


class BlockingPipe(Generic[T]):
    """One end of a socket pair, for code without an event loop; `T` is the union of messages that it receives."""

    def __init__(self, sock: socket.socket, kind: Any) -> None:
        self._sock = sock
        self._kind = kind
        self._buffer = FrameBuffer()
        self._received: deque[bytes] = deque()
        self.ended = False
        """The other end is closed, and all that it sent has been received."""

    def fileno(self) -> int:
        """For select()."""
        return self._sock.fileno()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send `message` whole, with `fds` beside it. Blocks while the peer does not read. Raises OSError."""
        data = frame(message)
        # The descriptors travel with the first byte, so the message that names them comes with them.
        sent = socket.send_fds(self._sock, [data], list(fds)) if fds else 0
        self._sock.sendall(memoryview(data)[sent:])

    def receive(self) -> T | None:
        """The next message; blocks for it. None when the other end is closed. Raises ProtocolError, OSError."""
        while not self._received and not self.ended:
            self._read(0)
        return self._next()

    def poll(self) -> T | None:
        """The next message if one is there; never blocks. Raises ProtocolError, OSError."""
        with suppress(BlockingIOError):
            if not self._received and not self.ended:
                self._read(socket.MSG_DONTWAIT)
        return self._next()

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def _read(self, flags: int) -> None:
        try:
            data = self._sock.recv(_CHUNK_BYTES, flags)
        except ConnectionResetError:
            # A peer that dies with unread bytes resets the connection, which is an end like any other.
            data = b""
        self.ended = not data
        self._received.extend(self._buffer.feed(data))

    def _next(self) -> T | None:
        return cast(T, decode(self._received.popleft(), self._kind)) if self._received else None


class AsyncPipe(Generic[T]):
    """One end of a socket pair, for one event loop; `T` is the union of messages that it receives."""

    def __init__(self, sock: socket.socket, kind: Any, carries_fds: bool = False) -> None:
        self._sock = sock
        self._kind = kind
        self._carries_fds = carries_fds
        self._buffer = FrameBuffer()
        self._received: deque[bytes] = deque()
        self._unsent = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self.fds: deque[int] = deque()
        """File descriptors that came beside messages, in their order; the caller's to close."""
        self.ended = False
        """The other end is closed, and all that it sent has been received."""
        sock.setblocking(False)

    def send(self, message: Message) -> None:
        """Send `message`, later if the peer does not read; returns at once. `receive` detects a closed peer.

        Raises ProtocolError for a message that is too large.
        """
        data = frame(message)
        if self._sock.fileno() < 0:
            return
        idle = not self._unsent
        self._unsent += data
        if idle:
            self._write()
            if self._unsent:
                asyncio.get_running_loop().add_writer(self._sock, self._write)

    async def receive(self) -> T | None:
        """The next message; None when the other end is closed. May be cancelled without loss. Raises ProtocolError."""
        while not self._received and not self.ended:
            await self._readable()
            if not self.ended:
                self._read()
        return cast(T, decode(self._received.popleft(), self._kind)) if self._received else None

    def shut(self) -> None:
        """Signal the end to the peer; messages from it still arrive."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        """Close, but keep for `receive` what has come already. For a peer that is gone. Raises nothing."""
        with suppress(ProtocolError):
            while not self.ended and self._read():
                pass
        self.close()

    def close(self) -> None:
        """Close this end, and the file descriptors that were not taken; `receive` returns None after what had come."""
        while self.fds:
            os.close(self.fds.popleft())
        if self._sock.fileno() >= 0:
            with suppress(RuntimeError):  # no loop runs: then none watches the socket
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._sock)
                loop.remove_writer(self._sock)
            self._sock.close()
        self._unsent.clear()
        self.ended = True
        self._wake()

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        # By its number: for each new reader the selector makes the text of an error, and that of a socket takes long.
        loop.add_reader(self._sock.fileno(), self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._sock.fileno() >= 0:
                loop.remove_reader(self._sock.fileno())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read(self) -> bool:
        """Whether anything came, the end included."""
        try:
            data = self._receive_fds() if self._carries_fds else self._sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # reset by a peer that died with messages unread
            data = b""
        self.ended = not data
        self._received.extend(self._buffer.feed(data))
        return True

    def _receive_fds(self) -> bytes:
        """As socket.recv_fds(), which drops its `flags` in Python 3.11."""
        fds = array("i")
        room = socket.CMSG_LEN(_MAX_FDS * fds.itemsize)
        data, ancillary, _, _ = self._sock.recvmsg(_CHUNK_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        for _level, _kind, carried in ancillary:
            fds.frombytes(carried[: len(carried) - len(carried) % fds.itemsize])
        self.fds.extend(fds)
        return data

    def _write(self) -> None:
        try:
            del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()
        if not self._unsent:
            asyncio.get_running_loop().remove_writer(self._sock)
