"""Runs kept in an object store: S3 and what speaks like it, Google Cloud Storage, Azure."""

import errno
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

from sparktrain.base.clock import Clock
from sparktrain.config.store_address import STORE_TIMEOUT_S, StoreAddress
from sparktrain.errors import RunDirectoryError, StoreError
from sparktrain.store.base import (
    FileInfo,
    NewFile,
    Store,
    WriteStream,
    Written,
    check_path,
    exists_error,
    path_problem,
)
from sparktrain.store.objects.bucket import PART_BYTES, Bucket, Page, Upload
from sparktrain.store.objects.requests import ObjectStoreCall

OPEN_S = 30.0
"""How long `probe` waits for the client's library and its credentials: on a busy host that takes seconds by itself."""
PROBE_S = 4.5
"""How long each request of `probe` retries: a user waits for it."""

_ABORT_S = 5.0


class ObjectStore(Store):
    """A prefix of a bucket. Safe between any hosts, if the service has the conditional writes that `probe` checks.

    A file is an object, created by a conditional request: only when its name is free. When the answer to a request was
    lost, a mark in the object's metadata, unique to the call, shows whether the request took effect.
    One case stays undecided: a request in flight when its call gave up (StoreTimeoutError) may take effect later.

    A log becomes visible when it is closed; a process that dies earlier leaves none of it.
    """

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        timeout_s: float = STORE_TIMEOUT_S,
        part_bytes: int = PART_BYTES,
        clock: Clock | None = None,
    ) -> None:
        """Large files are sent in parts of `part_bytes`; `clock`: see `ObjectStoreCall`."""
        self._bucket = bucket
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._part_bytes = part_bytes
        self._clock = clock

    @property
    def address(self) -> StoreAddress:
        """See base class. Without credentials: each process finds its own."""
        settings = self._call_of_root().ask(lambda bucket: bucket.settings())
        return StoreAddress(self.where(), settings, self._timeout_s)

    @property
    def shows_streams(self) -> bool:
        """See base class."""
        return False

    def where(self, path: str = "") -> str:
        """See base class. A URL."""
        key = self._key(path) if path else self._prefix
        return f"{self._bucket.url}/{key}" if key else self._bucket.url

    def probe(self) -> None:
        """See base class. Reports an unreachable service within 5 s, once the client is open."""
        try:
            # The client opens in 0.3 s on an idle host and in seconds on a busy one, which is no fault of the service.
            ObjectStoreCall(self._bucket, self._prefix, OPEN_S, clock=self._clock).ask(lambda bucket: bucket.settings())
            ObjectStore(self._bucket, self._prefix, PROBE_S, clock=self._clock)._probe(f"probe-{uuid4().hex}")
        except StoreError as error:
            raise RunDirectoryError(f"run directory {self.where()} cannot be used: {error.strerror}") from error

    def _probe(self, path: str) -> None:
        writer = uuid4().hex
        call = self._call(path)
        created = call.create(lambda bucket: bucket.put(call.key, b"sparktrain", writer), writer)
        try:
            # Both ways: a service may honour the condition of one request, and ignore that of a multipart upload.
            replaced = self.put_if_absent(path, b"overwritten") or self._new(path).publish_in_parts()
            content = self.read(path)
            mark = self._call(path).ask(lambda bucket: bucket.head(call.key)).writer
            self.list(path)
        finally:
            self.delete(path)
        # Old services that resemble S3 ignore the header, and replace the object.
        if not created or replaced or content != b"sparktrain":
            raise StoreError(
                errno.EIO,
                "its service replaces objects though the request forbids it, so that two drivers could write one run; "
                "use a service, or a version of it, that has conditional writes (If-None-Match)",
            )
        if mark != writer:
            raise StoreError(
                errno.EIO,
                "its service drops the metadata of objects, by which a driver recognizes its own after a lost answer; "
                "use a service, or a version of it, that keeps it",
            )

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See base class."""
        call = self._call(path, len(data))
        writer = uuid4().hex
        return call.create(lambda bucket: bucket.put(call.key, data, writer), writer)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See base class."""
        call = self._call(path, length)
        if length:
            return call.ask(lambda bucket: bucket.get(call.key, start, length))
        call.ask(lambda bucket: bucket.head(call.key))
        return b""

    def stat(self, path: str) -> FileInfo:
        """See base class."""
        call = self._call(path)
        info = call.ask(lambda bucket: bucket.head(call.key))
        return FileInfo(info.size, info.modified, info.version)

    def list(self, prefix: str = "") -> list[str]:
        """See base class."""
        return sorted(self._sizes(prefix))

    def _sizes(self, prefix: str) -> dict[str, int]:
        """The size of each file beneath a folder, by its path."""
        top = f"{self._prefix}/" if self._prefix else ""
        folder = f"{self._key(prefix)}/" if prefix else top
        call = self._call_of_root()
        page = _page(call, folder, None)
        sizes = dict(page.sizes)
        while page.next is not None:
            page = _page(call, folder, page.next)
            sizes |= page.sizes
        return {path: size for key, size in sizes.items() if path_problem(path := key[len(top) :]) is None}

    def create(self, path: str) -> NewFile:
        """See base class. Up to 156 GiB."""
        return self._create(path)

    def open_stream(self, path: str) -> WriteStream:
        """See base class. `close` also raises FileExistsError, when another process has created the file meanwhile."""
        return ObjectStream(self._create(path))

    def delete(self, path: str) -> None:
        """See base class."""
        call = self._call(path)
        with suppress(FileNotFoundError):
            call.ask(lambda bucket: bucket.delete(call.key))

    def delete_all(self, paths: Sequence[str]) -> None:
        """See base class. Each request has its own deadline."""
        keys = [self._key(path) for path in paths]
        count = self._bucket.deleted_at_once
        for first in range(0, len(keys), count):
            self._delete_many(keys[first : first + count])

    def _delete_many(self, keys: Sequence[str]) -> None:
        self._call_of_root().ask(lambda bucket: bucket.delete_many(keys))

    def _create(self, path: str) -> "LargeObject":
        if self.exists(path):
            raise exists_error(self.where(path))
        return self._new(path)

    def _new(self, path: str) -> "LargeObject":
        return LargeObject(self._bucket, self._key(path), self._timeout_s, self._part_bytes, self._clock)

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{check_path(path)}" if self._prefix else check_path(path)

    def _call(self, path: str, size: int = 0) -> ObjectStoreCall:
        return ObjectStoreCall(self._bucket, self._key(path), self._timeout_s, size, self._clock)

    def _call_of_root(self) -> ObjectStoreCall:
        return ObjectStoreCall(self._bucket, self._prefix, self._timeout_s, clock=self._clock)


class LargeObject(NewFile):
    """A large file: parts that the service holds, and up to one part in memory, until it is published."""

    def __init__(self, bucket: Bucket, key: str, timeout_s: float, part_bytes: int, clock: Clock | None = None) -> None:
        self._bucket = bucket
        self._key = key
        self._timeout_s = timeout_s
        self._part_bytes = part_bytes
        self._clock = clock
        self._writer = uuid4().hex
        self._upload: Upload | None = None
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False

    def write(self, data: bytes | memoryview) -> None:
        """See base class. After an error the file is discarded."""
        self._check_open()
        self._digest.update(data)
        self._size += len(data)
        remaining = memoryview(data)
        while remaining:
            room = self._part_bytes - len(self._buffer)
            self._buffer += remaining[:room]
            remaining = remaining[room:]
            if len(self._buffer) == self._part_bytes:
                self._send()

    def _send(self) -> None:
        call = self._call(self._part_bytes)
        part = bytes(self._buffer)
        try:
            upload = self._start_upload(call)
            call.ask(lambda _: upload.add(part))
        except BaseException:
            self.discard()
            raise
        self._buffer.clear()

    def _start_upload(self, call: ObjectStoreCall) -> Upload:
        if self._upload is None:
            self._upload = call.ask(lambda bucket: bucket.upload(self._key, self._writer))
        return self._upload

    def publish(self) -> Written:
        """See base class."""
        self._check_open()
        if not (self._publish_at_once() if self._upload is None else self.publish_in_parts()):
            raise exists_error(f"{self._bucket.url}/{self._key}")
        return Written(self._size, self._digest.hexdigest())

    def _publish_at_once(self) -> bool:
        call = self._call(len(self._buffer))
        data = bytes(self._buffer)
        try:
            return call.create(lambda bucket: bucket.put(self._key, data, self._writer), self._writer)
        finally:
            self.discard()

    def publish_in_parts(self) -> bool:
        """Publish as a multipart upload, whatever the size, and close the file: whether it got its name."""
        call = self._call(len(self._buffer))
        last = bytes(self._buffer)
        try:
            upload = self._start_upload(call)
            created = call.create(lambda _: upload.publish(last), self._writer)
            if created:
                self._upload = None
            return created
        except FileExistsError:  # Google checks already when an upload starts
            return False
        finally:
            self.discard()

    def discard(self) -> None:
        """See base class. Blocks for 5 s at most: parts that it cannot delete stay invisible in the service."""
        upload = self._upload
        self._upload = None
        self._ended = True
        self._buffer.clear()
        if upload is not None:
            with suppress(OSError):
                ObjectStoreCall(self._bucket, self._key, _ABORT_S, clock=self._clock).ask(lambda _: upload.abort())

    def _call(self, size: int) -> ObjectStoreCall:
        return ObjectStoreCall(self._bucket, self._key, self._timeout_s, size, self._clock)

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError("the file is closed: it was published or discarded, or an earlier write failed")


class ObjectStream(WriteStream):
    """A log that becomes visible when it is closed."""

    def __init__(self, file: LargeObject) -> None:
        self._file = file
        self._closed = False

    def write(self, data: bytes) -> None:
        """See base class."""
        self._file.write(data)

    def close(self) -> None:
        """See base class."""
        if not self._closed:
            self._closed = True
            self._file.publish()


def _page(call: ObjectStoreCall, folder: str, token: str | None) -> Page:
    return call.ask(lambda bucket: bucket.page(folder, token))
