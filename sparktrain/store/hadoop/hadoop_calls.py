"""Calls of a client of HDFS: each bounded in time, and made again where that may help."""

import os
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from sparktrain.backoff import Backoff, RetryBudget
from sparktrain.config.store_address import STORE_TIMEOUT_S
from sparktrain.errors import StoreError, StoreRefusedError, StoreTimeoutError
from sparktrain.store.call_timeout import THREADS, OverdueError
from sparktrain.store.hadoop import token_file
from sparktrain.store.hadoop.client import HadoopClient
from sparktrain.store.hadoop.hadoop_errors import HdfsErrorKind, TroubleError

T = TypeVar("T")

_CLEANING_S = 1.0
"""How long the caller waits for it; it goes on behind its back."""
_LEAST_S = 1.0

CALL_S = 30.0


class RetryPolicy(Struct, frozen=True):
    """How long a store tries; all times in seconds."""

    total_s: float = STORE_TIMEOUT_S
    """For a call of the store, whatever it takes."""
    call_s: float = CALL_S
    """For one request of its client, which is given up then, with the client."""
    again_s: float = STORE_TIMEOUT_S
    """After which nothing that failed is tried again."""
    first_pause_s: float = 0.5
    """Before the second attempt; twice that before the next one, and so on."""
    longest_pause_s: float = 30.0

    @classmethod
    def of(cls, timeout_s: float) -> "RetryPolicy":
        """For calls that go on trying for `timeout_s`."""
        return cls(total_s=timeout_s, again_s=timeout_s, call_s=min(CALL_S, timeout_s / 3))


class _Connection:
    """A client, from when it is first needed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._pid = os.getpid()
        self._tokens = token_file.changes()
        self._lock = Lock()
        self._client: HadoopClient | None = None

    def fits(self) -> bool:
        """Whether it is this process' own, and was made with the tokens of now."""
        return self._pid == os.getpid() and self._tokens == token_file.changes()

    def client(self, build: Callable[[int], HadoopClient]) -> HadoopClient:
        with self._lock:
            if self._client is None:
                self._client = build(self.number)
            return self._client


class HdfsCalls:
    """How a store calls its client. Used by any thread."""

    def __init__(
        self, build: Callable[[int], HadoopClient], explain: Callable[[BaseException], OSError], patience: RetryPolicy
    ) -> None:
        """`build` makes a client, given how many were abandoned before; it may block, and raise what clients raise.

        `explain` says what that means: FileNotFoundError, FileExistsError, NotADirectoryError or TroubleError.
        """
        self._build = build
        self._explain = explain
        self.patience = patience
        self._connection = _Connection(0)

    def begin(self, what: str, where: str) -> "HdfsCall":
        """A call of the store: what it does and to which file, for messages."""
        return HdfsCall(self, what, where)

    def once(self, work: Callable[[HadoopClient], T], timeout_s: float) -> T:
        """`work` with the client, explained when it fails. Blocks for at most `timeout_s` seconds.

        The client of a call that does not return in time is abandoned: what hangs may be its connection.
        """
        connection = self._connection
        if not connection.fits():
            connection = self._connection = _Connection(connection.number)

        def run() -> T:
            try:
                return work(connection.client(self._build))
            except BaseException as error:  # a panic of a native library is no Exception
                raise self._explain(error) from error

        try:
            return THREADS.run(run, timeout_s)
        except OverdueError as error:
            if self._connection is connection:
                self._connection = _Connection(connection.number + 1)
            raise TroubleError(
                str(error), "see whether its NameNode is stopped or overloaded", HdfsErrorKind.OVERDUE
            ) from error


class HdfsCall:
    """One call of the store, which may take many of its client. Used by one thread."""

    def __init__(self, calls: HdfsCalls, what: str, where: str) -> None:
        self._calls = calls
        self._what = what
        self._where = where
        patience = calls.patience
        backoff = Backoff(patience.first_pause_s, patience.longest_pause_s, jitter=(0.5, 1.0))
        self._retries = RetryBudget(min(patience.again_s, patience.total_s), backoff)

    def once(self, work: Callable[[HadoopClient], T]) -> T:
        """See `HdfsCalls.once`; for as long as the deadlines of both calls allow."""
        patience = self._calls.patience
        left = patience.total_s - self._retries.spent_s()
        return self._calls.once(work, min(patience.call_s, max(left, _LEAST_S)))

    def ask(self, work: Callable[[HadoopClient], T]) -> T:
        """`once`, again and again until it succeeds: for work that may be done twice. Raises StoreError."""
        while True:
            try:
                return self.once(work)
            except TroubleError as trouble:
                self.again(trouble)

    def again(self, trouble: TroubleError) -> None:
        """Wait before the next attempt. Raises StoreError when there is no use in it, or no time for it."""
        if trouble.kind is HdfsErrorKind.REFUSED:
            raise StoreRefusedError(f"{self._what} {self._where}: {trouble.cause}; {trouble.step}") from trouble
        if not self._retries.wait():
            raise self.failed(trouble) from trouble

    def clean_up(self, work: Callable[[HadoopClient], None]) -> None:
        """`work`, if it can be done soon; never raises for a failure."""
        try:
            THREADS.run(lambda: self._calls.once(work, self._calls.patience.call_s), _CLEANING_S)
        except OSError:
            return

    def failed(self, trouble: TroubleError) -> StoreError:
        """The error of a call that is not made again."""
        error = {
            HdfsErrorKind.OVERDUE: StoreTimeoutError,
            HdfsErrorKind.FULL: StoreRefusedError,
            HdfsErrorKind.REFUSED: StoreRefusedError,
        }.get(trouble.kind, StoreError)
        return error(
            f"{self._what} {self._where} failed, the last time after {self._retries.spent_s():.1f} s: "
            f"{trouble.cause}; {trouble.step}"
        )
