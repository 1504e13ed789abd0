"""What the readers of Parquet, Arrow and TFRecord files have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import pyarrow as pa

from sparktrain.datasets.manifest import DataFile, Group
from sparktrain.datasets.values import Lengths
from sparktrain.errors import DataError
from sparktrain.store.base import FileInfo, Store


class CorruptFileError(DataError):
    """Bytes of a file are not what its format asks for. `GroupFetcher` and `plan_files` add file, group and next step.

    `good` has the groups before the corrupt bytes, where an index of the file found them.
    """

    def __init__(self, cause: str, good: tuple[Group, ...] = ()) -> None:
        super().__init__(cause)
        self.good = good


class GroupedFile(ABC):
    """A file of the user, after the parts that all groups need were read. Any thread may call it; calls block."""

    schema: pa.Schema
    footer: int
    """Size in bytes of the footer at its end; 0 for formats without one."""
    footer_checksum: int | None
    """CRC-32C of the footer, or of the schema where a stream starts; None for formats without either."""

    @abstractmethod
    def groups(self, names: Sequence[str]) -> tuple[tuple[Group, ...], Lengths]:
        """The groups for readers of these columns, and the lengths of rows as far as the index of the file has them.

        Raises CorruptFileError.
        """

    @abstractmethod
    def nulls(self, names: Sequence[str]) -> dict[str, int]:
        """Numbers of nulls of those columns that have some, as far as the file's own statistics count them."""

    @abstractmethod
    def read(self, group: Group, names: Sequence[str]) -> pa.RecordBatch:
        """The rows of a group, with at least the columns of these names. Raises CorruptFileError."""

    @abstractmethod
    def number(self, group: Group) -> int | None:
        """The position of a group in the file; None when the file has no numbers for its groups."""


def read_exactly(store: Store, path: str, start: int, length: int) -> bytes:
    """`length` bytes of a file. Blocks on the store; raises CorruptFileError where the file is shorter."""
    data = store.read_range(path, start, length)
    if len(data) != length:
        raise CorruptFileError(f"it ends at byte {start + len(data):,}, and bytes up to {start + length:,} are needed")
    return data


def with_names(schema: pa.Schema) -> pa.Schema:
    """The schema itself, if all its names are texts. Raises CorruptFileError."""
    try:
        _read_names(schema)
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"a name in its schema is no text ({error})") from error
    return schema


def _read_names(fields: Iterable[pa.Field]) -> None:
    for field in fields:
        # PyArrow decodes a name when it is read, and fails then.
        _ = field.name
        _read_names(field.type.field(index) for index in range(field.type.num_fields))


def has_dictionary(fields: Sequence[pa.Field]) -> bool:
    """Whether a field, or one within it, is a dictionary."""
    return any(
        pa.types.is_dictionary(field.type)
        or has_dictionary([field.type.field(i) for i in range(field.type.num_fields)])
        for field in fields
    )


def check_unchanged(store: Store, file: DataFile) -> FileInfo:
    """Check that a file of the user has the size and version of the plan. Raises DataError; blocks on the store."""
    try:
        info = store.stat(file.path)
    except FileNotFoundError as error:
        raise DataError(
            f"{store.where(file.path)} is gone, and the dataset was planned with it: put it back, or start a new run"
        ) from error
    equal = info.version == file.version if file.version else abs(info.modified - file.modified) <= _CLOCK_S
    if info.size != file.size or not equal:
        difference = (
            f"it has {info.size:,} bytes of {info.modified:.3f} (seconds since 1970), and had {file.size:,} of "
            f"{file.modified:.3f}"
        )
        if info.size == file.size and abs(info.modified - file.modified) <= _CLOCK_S:
            difference += f", as versions {info.version} and {file.version}"
        raise replaced(store, file, difference)
    return info


def check_footer(store: Store, file: DataFile, opened: GroupedFile) -> None:
    """Check that the footer of a file is that of the plan, for writers may keep size and time. Raises DataError."""
    if file.footer_checksum is not None and opened.footer_checksum != file.footer_checksum:
        raise replaced(store, file, "it has another footer, though the same size and time")


def replaced(store: Store, file: DataFile, difference: str) -> DataError:
    """The error for a file that differs from the one of the plan in this."""
    return DataError(
        f"{store.where(file.path)} was replaced after the dataset was planned: {difference}; put the old file back "
        "with its time (cp -p), or repeat the call with allow_changed='data' to take the new one"
    )


_CLOCK_S = 0.001
"""Times of files pass through decimal fractions: manifests of earlier versions have nothing more exact."""
