"""Calls of an HDFS client, with timeouts and retries."""

import os
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.clock import Clock
from sparktrain.config.store_address import STORE_TIMEOUT_S
from sparktrain.errors import StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.call_timeout import THREADS, OverdueError
from sparktrain.store.hadoop import token_file
from sparktrain.store.hadoop.client import HadoopClient
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind

T = TypeVar("T")

_CLEANING_S = 1.0
"""How long a caller waits for cleanup, which then continues in the background."""
_LEAST_S = 1.0

CALL_S = 30.0


class RetryPolicy(Struct, frozen=True):
    """How long a store retries; all times in seconds."""

    total_s: float = STORE_TIMEOUT_S
    """Limit of a call of the store, with all its requests."""
    call_s: float = CALL_S
    """Timeout of one request; a client that exceeds it is abandoned."""
    again_s: float = STORE_TIMEOUT_S
    """No attempt starts later than this after the start of a call."""
    first_pause_s: float = 0.5
    """Pause before the second attempt; each later pause is twice as long."""
    longest_pause_s: float = 30.0

    @classmethod
    def of(cls, timeout_s: float) -> "RetryPolicy":
        """A policy for calls that retry for `timeout_s` seconds."""
        return cls(total_s=timeout_s, again_s=timeout_s, call_s=min(CALL_S, timeout_s / 3))


class _Connection:
    """A client that is created on first use."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._pid = os.getpid()
        self._tokens = token_file.changes()
        self._lock = Lock()
        self._client: HadoopClient | None = None

    def fits(self) -> bool:
        """Whether the client belongs to this process and has its current tokens."""
        return self._pid == os.getpid() and self._tokens == token_file.changes()

    def client(self, build: Callable[[int], HadoopClient]) -> HadoopClient:
        with self._lock:
            if self._client is None:
                self._client = build(self.number)
            return self._client


class HdfsCalls:
    """Calls the client of a store. Used by any thread."""

    def __init__(
        self,
        build: Callable[[int], HadoopClient],
        explain: Callable[[BaseException], OSError],
        policy: RetryPolicy,
        clock: Clock | None = None,
    ) -> None:
        """`build` creates a client, given the number of abandoned ones; it may block, and raise what clients raise.

        `explain` maps it to FileNotFoundError, FileExistsError, NotADirectoryError or HadoopCallError. `clock` measures
        the budget and makes the pauses of retries; timeouts of requests use the machine's clock.
        """
        self._build = build
        self._explain = explain
        self.policy = policy
        self.clock = clock
        self._connection = _Connection(0)

    def start(self, operation: str, where: str) -> "HdfsCall":
        """Start a call of the store; messages name its operation and its file."""
        return HdfsCall(self, operation, where)

    def run_once(self, work: Callable[[HadoopClient], T], timeout_s: float) -> T:
        """Run `work` with the client, and explain its errors. Blocks for at most `timeout_s` seconds.

        The client of a call that exceeds its timeout is abandoned: its connection may hang.
        """
        # A forked child cannot use its parent's connections, and a client keeps the tokens that it has found at its
        # creation.
        connection = self._connection
        if not connection.fits():
            connection = self._connection = _Connection(connection.number)

        def run() -> T:
            try:
                return work(connection.client(self._build))
            except BaseException as error:  # a panic of a native library is not an Exception
                raise self._explain(error) from error

        try:
            # hdfs-native waits for a NameNode without limit: one that was stopped held a call for 206 s, until it
            # continued.
            return THREADS.run(run, timeout_s)
        except OverdueError as error:
            # Of several callers that run into their timeouts, only the first replaces the client.
            if self._connection is connection:
                self._connection = _Connection(connection.number + 1)
            raise HadoopCallError(
                str(error), "see whether its NameNode is stopped or overloaded", HdfsErrorKind.OVERDUE
            ) from error


class HdfsCall:
    """One call of the store, with any number of client requests. Used by one thread."""

    def __init__(self, calls: HdfsCalls, operation: str, where: str) -> None:
        self._calls = calls
        self._operation = operation
        self._where = where
        policy = calls.policy
        backoff = Backoff(policy.first_pause_s, policy.longest_pause_s, jitter=(0.5, 1.0))
        self._retries = RetryBudget(min(policy.again_s, policy.total_s), backoff, calls.clock)

    def run_once(self, work: Callable[[HadoopClient], T]) -> T:
        """See `HdfsCalls.run_once`; the timeout is the smaller one of the request and of the whole call."""
        policy = self._calls.policy
        remaining_s = policy.total_s - self._retries.spent_s()
        return self._calls.run_once(work, min(policy.call_s, max(remaining_s, _LEAST_S)))

    def ask(self, work: Callable[[HadoopClient], T]) -> T:
        """Retry `run_once` until it succeeds, for idempotent work. Raises StoreError."""
        while True:
            try:
                return self.run_once(work)
            except HadoopCallError as failure:
                self.retry_after(failure)

    def retry_after(self, failure: HadoopCallError) -> None:
        """Wait before the next attempt. Raises StoreError when a retry is useless, or the budget is spent."""
        if failure.kind is HdfsErrorKind.REFUSED:
            raise StoreRefusedError(f"{self._operation} {self._where}: {failure.cause}; {failure.step}") from failure
        if not self._retries.wait():
            raise self.failed(failure) from failure

    def clean_up(self, work: Callable[[HadoopClient], None]) -> None:
        """Run `work` if it finishes soon; ignores its failure."""
        try:
            THREADS.run(lambda: self._calls.run_once(work, self._calls.policy.call_s), _CLEANING_S)
        except OSError:
            return

    def failed(self, failure: HadoopCallError) -> StoreError:
        """The error of a call that is not retried."""
        error = {
            HdfsErrorKind.OVERDUE: StoreTimeoutError,
            HdfsErrorKind.FULL: StoreRefusedError,
            HdfsErrorKind.REFUSED: StoreRefusedError,
        }.get(failure.kind, StoreError)
        return error(
            f"{self._operation} {self._where} failed, the last time after {self._retries.spent_s():.1f} s: "
            f"{failure.cause}; {failure.step}"
        )
