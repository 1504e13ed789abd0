"""An object store over a service that fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from sparktrain.errors import RunDirectoryError, StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.objects import object_store
from sparktrain.store.objects.bucket import PART_BYTES, ObjectInfo, Page, RequestErrorKind, RequestFailure, Upload
from sparktrain.store.objects.memory_bucket import MemoryBucket
from sparktrain.store.objects.object_store import ObjectStore
from tests.unit.clocks import InstantClock


class LostError(Exception):
    """No answer came."""


class DeniedError(Exception):
    """The service refused."""


class FlakyBucket(MemoryBucket):
    """A service that follows a plan: each request takes the next entry under its name, and fails accordingly.

    `before` fails before it takes effect, `after` fails afterwards, and `deny` is refused.
    """

    def __init__(self, **plan: list[str]) -> None:
        super().__init__(uuid4().hex)
        self.plan = plan
        self.asked: list[str] = []

    async def _follow(self, name: str, request: Callable[[], Awaitable[Any]]) -> Any:
        self.asked.append(name)
        step = self.plan[name].pop(0) if self.plan.get(name) else "answer"
        if step == "deny":
            raise DeniedError
        answer = None if step == "before" else await request()
        if step in ("before", "after"):
            raise LostError
        return answer

    async def put(self, key: str, data: bytes, writer: str) -> None:
        await self._follow("put", lambda: super(FlakyBucket, self).put(key, data, writer))

    async def upload(self, key: str, writer: str) -> Upload:
        inner = await super().upload(key, writer)
        return FlakyUpload(self, inner)

    async def head(self, key: str) -> ObjectInfo:
        return await self._follow("head", lambda: super(FlakyBucket, self).head(key))

    async def get(self, key: str, start: int, length: int) -> bytes:
        return await self._follow("get", lambda: super(FlakyBucket, self).get(key, start, length))

    async def page(self, prefix: str, token: str | None) -> Page:
        whole = await self._follow("page", lambda: super(FlakyBucket, self).page(prefix, None))
        number = int(token or 0)
        more = number + 1 < len(whole.sizes)
        one = dict(list(whole.sizes.items())[number : number + 1])
        return Page(one, str(number + 1) if more else None)

    def explain(self, error: Exception) -> RequestFailure:
        if isinstance(error, LostError):
            return RequestFailure(RequestErrorKind.AGAIN, "the service is silent", "restart it")
        if isinstance(error, DeniedError):
            return RequestFailure(RequestErrorKind.REFUSED, "access is denied", "ask for access")
        return super().explain(error)


class FlakyUpload(Upload):
    def __init__(self, bucket: FlakyBucket, inner: Upload) -> None:
        self._bucket = bucket
        self._inner = inner

    async def add(self, part: bytes) -> None:
        await self._bucket._follow("add", lambda: self._inner.add(part))

    async def publish(self, last: bytes) -> None:
        await self._bucket._follow("publish", lambda: self._inner.publish(last))

    async def abort(self) -> None:
        await self._bucket._follow("abort", self._inner.abort)


def store_on(bucket: MemoryBucket, part_bytes: int = PART_BYTES) -> ObjectStore:
    return ObjectStore(bucket, "exp", 20, part_bytes, InstantClock())


@pytest.mark.parametrize("lost", [["before"], ["after"], ["before", "after"], ["after", "before", "before"]])
def test_put_if_absent_returns_true_to_the_creator_despite_lost_answers(lost: list[str]) -> None:
    store = store_on(FlakyBucket(put=lost, head=["before"]))
    assert store.put_if_absent("a", b"same") is True
    assert store.put_if_absent("a", b"same") is False
    assert store.read("a") == b"same"


def test_put_if_absent_returns_false_to_a_later_writer_despite_lost_answers() -> None:
    bucket = FlakyBucket()
    store_on(bucket).put_if_absent("a", b"same")
    bucket.plan = {"put": ["before", "before"]}
    assert store_on(bucket).put_if_absent("a", b"same") is False


def test_an_object_without_a_mark_counts_as_another_writers() -> None:
    class Unmarked(FlakyBucket):
        async def head(self, key: str) -> ObjectInfo:
            found = await super().head(key)
            return ObjectInfo(found.size, found.modified, None)

    assert store_on(Unmarked(put=["after"])).put_if_absent("a", b"") is False


def test_a_call_that_times_out_may_have_taken_effect() -> None:
    bucket = FlakyBucket(put=["after"] + ["before"] * 20)
    with pytest.raises(StoreTimeoutError, match=r"the service is silent, for 20 s; restart it") as caught:
        store_on(bucket).put_if_absent("a", b"whole")
    assert caught.value.filename == f"{bucket.url}/exp/a"
    bucket.plan = {}
    assert store_on(bucket).read("a") == b"whole"


def test_a_refused_request_is_not_retried() -> None:
    bucket = FlakyBucket(put=["deny"], get=["deny"])
    for call in (lambda: store_on(bucket).put_if_absent("a", b""), lambda: store_on(bucket).read("a")):
        with pytest.raises(StoreRefusedError, match="access is denied; ask for access"):
            call()
    assert bucket.asked == ["put", "get"]


def test_reads_are_retried() -> None:
    bucket = FlakyBucket(get=["before"], head=["before"], page=["before", "answer", "before"])
    store = store_on(bucket)
    for path in ("b", "a/c"):
        store.put_if_absent(path, b"data")
    assert store.read("b") == b"data"
    assert store.stat("b").size == 4
    assert store.list() == ["a/c", "b"]


@pytest.mark.parametrize("lost", [["before"], ["after"]])
def test_a_large_file_is_published_once_despite_lost_answers(lost: list[str]) -> None:
    bucket = FlakyBucket(add=["before"], publish=lost)
    file = store_on(bucket, part_bytes=4).create("model")
    file.write(b"0123")
    file.write(b"456789")
    assert file.publish().size == 10
    assert store_on(bucket).read("model") == b"0123456789"
    assert "abort" not in bucket.asked


def test_a_large_file_that_cannot_be_sent_is_discarded() -> None:
    bucket = FlakyBucket(add=["answer", "deny"])
    store = store_on(bucket, part_bytes=4)
    file = store.create("model")
    file.write(b"0123")
    with pytest.raises(StoreRefusedError):
        file.write(b"4567")
    assert bucket.asked[-1] == "abort"
    for late in (file.publish, lambda: file.write(b"")):
        with pytest.raises(ValueError, match="closed"):
            late()
    assert store.list() == []


def test_an_upload_that_another_client_ended_is_an_error() -> None:
    class Forgetful(FlakyBucket):
        async def _follow(self, name: str, request: Callable[[], Awaitable[Any]]) -> Any:
            if name == "publish":
                raise FileNotFoundError("no such upload")
            return await request()

    file = store_on(Forgetful(), part_bytes=4).create("model")
    file.write(b"01234567")
    with pytest.raises(StoreError, match="has deleted the parts that were sent; write the file again"):
        file.publish()


def test_folders_of_other_tools_and_unpublished_files_are_not_listed() -> None:
    bucket = MemoryBucket(uuid4().hex)
    other = ObjectStore(bucket, "", 20)
    other.put_if_absent("exp/a", b"")
    other.put_if_absent("expert", b"")
    for key in ("exp/folder/", "exp/.tmp-1", "exp//x"):
        other._call_of_root().ask(lambda bucket, key=key: bucket.put(key, b"", "w"))  # type: ignore[misc]
    assert store_on(bucket).list() == ["a"]


@pytest.mark.parametrize(
    ("bucket", "message"),
    [
        (FlakyBucket(put=["deny"]), "cannot be used: access is denied; ask for access"),
        (FlakyBucket(page=["deny"]), "cannot be used: access is denied; ask for access"),
        (FlakyBucket(get=["deny"]), "cannot be used: access is denied; ask for access"),
    ],
    ids=["no write", "no list", "no read"],
)
def test_probe_reports_missing_permissions_and_leaves_nothing(bucket: FlakyBucket, message: str) -> None:
    with pytest.raises(RunDirectoryError, match=message):
        store_on(bucket).probe()
    assert store_on(bucket).list() == []


def test_probe_does_not_take_a_client_that_opens_slowly_for_a_silent_service(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FlakyBucket):
        """Takes longer than a request may to load its library, as clients of services do on a busy host."""

        opened = False

        async def settings(self) -> dict[str, str]:
            await self._open()
            return {}

        async def _follow(self, name: str, request: Callable[[], Awaitable[Any]]) -> Any:
            await self._open()
            return await super()._follow(name, request)

        async def _open(self) -> None:
            if not self.opened:
                await asyncio.sleep(0.6)
                self.opened = True

    monkeypatch.setattr(object_store, "PROBE_S", 0.3)
    bucket = Slow()
    store_on(bucket).probe()
    assert bucket.opened
    assert bucket.asked, "and the requests have their own time after that"


def test_probe_detects_a_service_that_drops_marks() -> None:
    class Unmarked(MemoryBucket):
        async def put(self, key: str, data: bytes, writer: str) -> None:
            await super().put(key, data, "")

    with pytest.raises(RunDirectoryError, match="drops the metadata of objects"):
        store_on(Unmarked(uuid4().hex)).probe()


@pytest.mark.parametrize("lenient", ["put", "publish"])
def test_probe_detects_a_service_that_overwrites(lenient: str) -> None:
    class Lenient(FlakyBucket):
        async def _follow(self, name: str, request: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await request()
            except FileExistsError:
                if name != lenient:
                    raise

    with pytest.raises(RunDirectoryError, match="replaces objects though the request forbids it"):
        store_on(Lenient()).probe()


def test_unknown_errors_become_store_errors() -> None:
    class Failing(MemoryBucket):
        async def put(self, key: str, data: bytes, writer: str) -> None:
            raise ValueError("broken")

    with pytest.raises(StoreError, match="ValueError: broken"):
        store_on(Failing("x")).put_if_absent("a", b"")
