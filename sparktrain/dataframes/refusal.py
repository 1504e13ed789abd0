"""Why a task of Spark has refused its rows, for the driver and for the other tasks of the job.

A task that meets values without a rule, such as nulls, returns why in its row. An exception would fail the task: Spark
would compute the partition three times more, and print pages of traces of the JVM before the one line that matters. The
task also leaves a note in its store, by which tasks that start later, or another file, end at once.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import DataError
from sparktrain.store.url import open_store

Result = TypeVar("Result")


@dataclass(frozen=True)
class RefusalNote:
    """The note of one job: a file that exists as soon as one of its tasks has refused rows."""

    store: StoreAddress
    path: str
    """Its last part starts with `_`: Spark and sparktrain read no such files."""

    def heeded(self, work: Callable[[], Result]) -> tuple[Result | None, str]:
        """What `work` returns, or why rows are refused: by another task, or by the DataError that `work` raises.

        For a task. Blocks on the store. Raises OSError, and what else `work` raises.
        """
        try:
            self.check()
            return work(), ""
        except DataError as error:
            open_store(self.store).put_if_absent(self.path, str(error).encode())
            return None, str(error)

    def check(self) -> None:
        """Raise DataError where a task of the job has refused its rows. Blocks on the store. Raises OSError."""
        with suppress(FileNotFoundError):
            raise DataError(open_store(self.store).read(self.path).decode())

    def raise_refusal(self, refusals: Iterable[str]) -> None:
        """Raise DataError with the first refusal that the tasks have returned, and delete the note.

        For the driver, when the job has ended. Blocks on the store.
        """
        if refused := next(filter(None, refusals), ""):
            with suppress(OSError):  # it is small, and its name is never used again
                open_store(self.store).delete(self.path)
            raise DataError(refused)
