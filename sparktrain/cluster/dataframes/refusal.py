"""Why a task of Spark has given its rows up, for the driver and for the other tasks of the job.

A task that meets values without a rule, such as nulls, or a full disk, returns why in its row. An exception would fail
the task: Spark would compute the partition three times more, wait for the disk as often, and print pages of traces of
the JVM before the one line that matters. The task also leaves a note in its store, by which tasks that start later, or
another file, end at once.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import DataError, RunDirectoryError, SparktrainError
from sparktrain.store.url import open_store

Result = TypeVar("Result")
_ERRORS: dict[str, type[SparktrainError]] = {error.__name__: error for error in (DataError, RunDirectoryError)}
_AFTER_NAME = ": "
_NOTE_S = 10.0
"""How long a task tries to leave the note."""


@dataclass(frozen=True)
class RefusalNote:
    """The note of one job: a file that exists as soon as one of its tasks has refused rows."""

    store: StoreAddress
    path: str
    """Its last part starts with `_`: Spark and sparktrain read no such files."""

    def protected(self, work: Callable[[], Result]) -> tuple[Result | None, str]:
        """What `work` returns, or why it gives up: as another task did, or by the error that `work` raises.

        For a task. Takes DataError and RunDirectoryError. Blocks on the store. Raises what else `work` raises, OSError.
        """
        try:
            self.check()
            return work(), ""
        except tuple(_ERRORS.values()) as error:
            refusal = f"{type(error).__name__}{_AFTER_NAME}{error}"
            with suppress(OSError):  # of a full disk, perhaps; the row has it too
                open_store(replace(self.store, timeout_s=_NOTE_S)).put_if_absent(self.path, refusal.encode())
            return None, refusal

    def check(self) -> None:
        """Raise the error with which another task has given up, if one has. Blocks on the store. Raises OSError."""
        try:
            refusal = open_store(self.store).read(self.path).decode()
        except FileNotFoundError:
            return
        raise _error_of(refusal)

    def raise_refusal(self, refusals: Iterable[str]) -> None:
        """Raise the error of the first refusal that the tasks have returned, and delete the note.

        For the driver, when the job has ended. Blocks on the store.
        """
        if refused := next(filter(None, refusals), ""):
            with suppress(OSError):  # it is small, and its name is never used again
                open_store(self.store).delete(self.path)
            raise _error_of(refused)


def _error_of(refusal: str) -> SparktrainError:
    name, _, text = refusal.partition(_AFTER_NAME)
    return _ERRORS[name](text)
