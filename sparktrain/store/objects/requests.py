"""The requests of one call of an object store: retried until they are answered, or the call's deadline."""

import errno
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.clock import Clock
from sparktrain.errors import StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.base import exists_error, missing_error
from sparktrain.store.objects.bucket import Bucket, ObjectInfo, RequestErrorKind, RequestFailure

_REQUEST_S = 60.0
_SLOWEST_BYTES_PER_S = 256 * 2**10
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0

T = TypeVar("T")
Ask = Callable[[Bucket], Coroutine[Any, Any, T]]
"""A coroutine function that makes one request."""

_DELETED = RequestFailure(
    RequestErrorKind.AGAIN, "it was deleted while it was created", "let only one driver write a run"
)
_UPLOAD_GONE = RequestFailure(
    RequestErrorKind.FAILED, "the service has deleted the parts that were sent", "write the file again"
)


class ObjectStoreCall:
    """One call of a store: its requests share one deadline. Each blocks for at most 60 s, a large one for longer.

    Raises FileExistsError when a name is taken, FileNotFoundError when there is no such object, StoreError otherwise.
    """

    def __init__(self, bucket: Bucket, key: str, seconds: float, size: int = 0, clock: Clock | None = None) -> None:
        """`clock` measures the deadline and makes the pauses; timeouts of requests use the machine's clock."""
        self.key = key
        self._bucket = bucket
        self._name = f"{bucket.url}/{key}"
        self._seconds = seconds
        self._retries = RetryBudget(seconds, Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), clock)
        self._request_s = _REQUEST_S + size / _SLOWEST_BYTES_PER_S

    def ask(self, ask: Ask[T]) -> T:
        """Make a request, and retry it until it is answered."""
        while True:
            try:
                return self._run_once(ask)
            except Exception as error:
                failure = self._bucket.explain(error)
                if failure.kind is not RequestErrorKind.AGAIN:
                    raise self._error(failure) from error
                self._wait(failure, error)

    def create(self, ask: Ask[None], writer: str) -> bool:
        """Make a request that creates the object: whether `writer` has created it.

        When the answer to a request that took effect is lost, its retry is refused; hence the object's metadata decides
        who created it. An object without that mark counts as another writer's: two winners would be worse than none.
        """
        while True:
            try:
                self.ask(ask)
                return True
            except (FileExistsError, FileNotFoundError) as error:
                info = self._find()
                if info is not None:
                    return info.writer == writer
                if isinstance(error, FileNotFoundError):
                    raise self._error(_UPLOAD_GONE) from error
                # The name was taken a moment ago, and is free now: only the next attempt can decide.
                self._wait(_DELETED, error)

    def _find(self) -> ObjectInfo | None:
        try:
            return self.ask(lambda bucket: bucket.head(self.key))
        except FileNotFoundError:
            return None

    def _run_once(self, ask: Ask[T]) -> T:
        from fsspec import asyn

        remaining_s = max(self._seconds - self._retries.spent_s(), 0.001)  # fsspec takes 0 for no limit
        answer: T = asyn.sync(asyn.get_loop(), ask, self._bucket, timeout=min(remaining_s, self._request_s))
        return answer

    def _wait(self, failure: RequestFailure, error: Exception) -> None:
        """Wait before the next request; StoreTimeoutError when the deadline is too close for one."""
        if not self._retries.wait():
            problem = f"{failure.cause}, for {self._seconds:g} s; {failure.step}"
            raise StoreTimeoutError(errno.ETIMEDOUT, problem, self._name) from error

    def _error(self, failure: RequestFailure) -> OSError:
        if failure.kind is RequestErrorKind.TAKEN:
            return exists_error(self._name)
        if failure.kind is RequestErrorKind.MISSING:
            return missing_error(self._name)
        problem = f"{failure.cause}; {failure.step}"
        if failure.kind is RequestErrorKind.REFUSED:
            return StoreRefusedError(errno.EACCES, problem, self._name)
        return StoreError(errno.EIO, problem, self._name)
