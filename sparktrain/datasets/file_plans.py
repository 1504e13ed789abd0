"""Plans a dataset of files that exist: which files, which groups in them, and what their columns are."""

import logging
from collections.abc import Iterable, Sequence
from functools import reduce

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.clock import SystemClock
from sparktrain.config.data_sources import FileSource
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.columns import Column, ColumnKind, check_pad, chosen, one_a_line
from sparktrain.datasets.file_formats import CorruptFileError
from sparktrain.datasets.file_paths import NamedFile, folder_columns, located, named_files
from sparktrain.datasets.folder_values import differently_spelled
from sparktrain.datasets.group_fetch import CorruptGroupError, GroupFetcher, opened
from sparktrain.datasets.manifest import DataFile, Manifest
from sparktrain.datasets.values import Lengths, check_values, joined, shaped
from sparktrain.errors import DataError, SpecError
from sparktrain.store.base import Store
from sparktrain.store.parallel import spread
from sparktrain.store.url import open_store

PLANNING_TIMEOUT_S = 60.0
"""How long each call of the store retries: a user waits for the plan."""

_THREADS = 8
_SAMPLES = 4
"""How many groups are read for the lengths of lists and bytes, evenly spread over the dataset."""
_PROGRESS_S = 10.0

logger = logging.getLogger("sparktrain")


class PlannedFile(Struct, frozen=True):
    """A file and what is in its index."""

    file: DataFile
    columns: tuple[Column, ...]
    """Without those of folders."""
    nulls: dict[str, int]
    lengths: Lengths


def plan_files(source: FileSource, name: str, timeout_s: float = PLANNING_TIMEOUT_S) -> Manifest:
    """The manifest of the files that `source` describes; `name` is the user's name for the dataset.

    For the driver. Blocks on the store; each call of it retries for `timeout_s` seconds. Reads the footers of Parquet
    and Arrow files, all of TFRecord files, and where columns have lists or bytes a few groups. With
    `on_error="skip"` it reads every group, logs a warning for each file with corrupt ones, and leaves these out.

    Raises DataError: for paths without files, different stores, corrupt files, schemas that differ between files,
    columns that are missing, without a rule, with nulls or without one shape, and for no rows at all. Raises SpecError
    for a URL that no store has, OSError when the store fails.
    """
    subject = f"data[{name!r}]"
    root, patterns = located(source.paths, subject)
    try:
        store = open_store(StoreAddress(root, timeout_s=timeout_s))
    except SpecError as error:  # its subject is dir=
        raise SpecError(f"{subject}: {str(error).replace('dir (', 'path (', 1)}") from error
    files = named_files(store, patterns, subject)
    of_folders = folder_columns(files, subject, source.columns)
    empty = Manifest(
        name=name,
        format=source.format,
        columns=(),
        files=(),
        root=root,
        pad=dict(source.pad),
        on_error=source.on_error,
        compression=_compression(store, files, source),
        features=dict(source.features),
    )
    planner = _Planner(store, source, empty, subject, of_folders)
    planned = spread(lambda file, _: planner.plan(file), files, _THREADS)
    return planner.manifest([planned_file for planned_file in planned if planned_file is not None])


class _Planner:
    """Plans the files of one dataset."""

    def __init__(
        self, store: Store, source: FileSource, empty: Manifest, subject: str, of_folders: tuple[Column, ...]
    ) -> None:
        self._store = store
        self._source = source
        self._empty = empty
        self._subject = subject
        self._of_folders = of_folders
        self._skips = source.on_error == "skip"

    def plan(self, named: NamedFile) -> PlannedFile | None:
        """Read the index of a file; None for a corrupt file that is skipped. Any thread may call it."""
        path = named.path
        where = f"{self._subject}, {self._store.where(path)}"
        try:
            info = self._store.stat(path)
        except FileNotFoundError as error:
            raise DataError(f"{where} was deleted meanwhile: wait for its writer, and try again") from error
        file = DataFile(path, info.size, (), modified=info.modified, version=info.version)
        try:
            opened_file = opened(self._store, path, info.size, self._source.format, self._empty)
            schema = self._without_folders(opened_file.schema, where)
            columns = columns_of(schema, where, self._names())
        except CorruptFileError as error:
            self._corrupt(where, error)
            return None
        names = [column.name for column in columns]
        try:
            groups, lengths = opened_file.groups(names)
        except CorruptFileError as error:
            self._corrupt(where, error)
            groups = error.good
            lengths = {}
        file = replace(file, groups=groups, footer=opened_file.footer, footer_checksum=opened_file.footer_checksum)
        return PlannedFile(file, columns, opened_file.nulls(names), lengths)

    def manifest(self, planned: Sequence[PlannedFile]) -> Manifest:
        """Check all files against each other, and look at values where columns need it. Blocks on the store."""
        if not planned:
            raise DataError(f"{self._subject} has no file that is not corrupt: put good copies back")
        self._check_alike(planned)
        self._check_nulls(planned)
        files = tuple(planned_file.file for planned_file in planned if planned_file.file.groups)
        if not files:
            raise DataError(
                f"{self._subject} has no rows: its {len(planned)} file{'s' * (len(planned) > 1)} hold none; check the "
                f"job that wrote {self._store.where(planned[0].file.path)}"
            )
        columns = self._columns(planned[0].columns)
        check_pad(columns, self._source.pad, self._subject)
        draft = replace(self._empty, columns=columns, files=files)
        if self._skips:
            draft, lengths = verified(draft, self._store)
        else:
            lengths = self._sampled(draft, _joined(planned_file.lengths for planned_file in planned))
        return replace(draft, columns=shaped(draft.columns, lengths, self._subject))

    def _without_folders(self, schema: pa.Schema, where: str) -> pa.Schema:
        """The columns of a file that its folders do not give, too: as in Spark, the folder has the value."""
        names = [column.name for column in self._of_folders]
        if (alike := differently_spelled(names, schema.names)) is not None:
            raise DataError(
                f"{where}: column {alike[0]!r} of its folders and {alike[1]!r} in the file differ in case alone, and "
                "Spark takes them for one: rename one"
            )
        return pa.schema([field for field in schema if field.name not in names])

    def _names(self) -> list[str] | None:
        """The columns to take from a file; None: all."""
        if self._source.columns is None:
            return None
        of_folders = {column.name for column in self._of_folders}
        return [name for name in self._source.columns if name not in of_folders]

    def _columns(self, in_files: Sequence[Column]) -> tuple[Column, ...]:
        """The columns of the dataset."""
        columns = [*in_files, *self._of_folders]
        return tuple(columns) if self._source.columns is None else chosen(columns, self._source.columns, self._subject)

    def _corrupt(self, where: str, error: CorruptFileError) -> None:
        """Log what is skipped, or raise DataError."""
        if not self._skips:
            raise DataError(f"{where} is corrupt: {error}; put a good copy back, or pass on_error='skip'") from error
        good_rows = sum(group.rows for group in error.good)
        outcome = f"all rows after the first {good_rows:,} are skipped" if good_rows else "all its rows are skipped"
        logger.warning("%s is corrupt: %s; %s", where, error, outcome)

    def _check_alike(self, planned: Sequence[PlannedFile]) -> None:
        first = planned[0]
        mine = {column.name: column for column in first.columns}
        for planned_file in planned[1:]:
            other_columns = {column.name: column for column in planned_file.columns}
            problems = [
                f"column {name!r}: {_type(mine, name)} and {_type(other_columns, name)}"
                for name in dict.fromkeys([*mine, *other_columns])
                if _rule(mine, name) != _rule(other_columns, name)
            ]
            if problems:
                path = self._store.where(first.file.path)
                peer = self._store.where(planned_file.file.path)
                start = (
                    f"{self._subject} has files of different schemas, {path} and {peer}; cast one of them, or select "
                    "columns= that they share"
                )
                raise DataError(one_a_line(start, problems))

    def _check_nulls(self, planned: Sequence[PlannedFile]) -> None:
        problems = [
            f"column {name!r} has {count:,} null{'s' * (count != 1)} in {self._store.where(planned_file.file.path)}"
            for planned_file in planned
            for name, count in planned_file.nulls.items()
        ]
        if problems:
            start = (
                f"{self._subject} has nulls, and a tensor has none; fill them (df.fillna), drop them (df.dropna), or "
                "select other columns"
            )
            raise DataError(one_a_line(start, problems))

    def _sampled(self, draft: Manifest, all_lengths: Lengths) -> Lengths:
        """The lengths of lists and bytes in some groups."""
        unknown = tuple(
            column
            for column in draft.columns
            if column.kind in (ColumnKind.ARRAY, ColumnKind.BINARY) and column.name not in all_lengths
        )
        if not unknown:
            return all_lengths
        groups = _all_groups(draft.files)
        step = max(1, (len(groups) - 1)) / (_SAMPLES - 1)
        picked = sorted({min(len(groups) - 1, round(number * step)) for number in range(_SAMPLES)})
        fetcher = GroupFetcher(replace(draft, columns=unknown), self._store)
        subject = self._subject

        def look(place: tuple[int, int]) -> Lengths:
            return check_values(fetcher.fetch(*place), unknown, subject)

        samples = spread(lambda place, _: look(place), [groups[index] for index in picked], _THREADS)
        return _joined([all_lengths, *samples])


def verified(draft: Manifest, store: Store) -> tuple[Manifest, Lengths]:
    """`draft` without its corrupt groups, and the lengths of all lists and bytes. Reads every group.

    Logs a warning for each file with corrupt groups. Raises DataError when no good group is left.
    """
    groups = _all_groups(draft.files)
    check = _Verification(draft, store, len(groups))
    results = dict(zip(groups, spread(lambda place, _: check.look(place), groups, _THREADS), strict=True))
    files = []
    for index, file in enumerate(draft.files):
        bad = {number: why for number in range(len(file.groups)) if isinstance(why := results[index, number], str)}
        good = tuple(group for number, group in enumerate(file.groups) if number not in bad)
        if bad:
            rows = sum(file.groups[number].rows for number in bad)
            logger.warning(
                "data[%r]: %s: %d of %d row groups with %s rows are corrupt and skipped: %s",
                draft.name,
                store.where(file.path),
                len(bad),
                len(file.groups),
                f"{rows:,}",
                next(iter(bad.values())),
            )
        if good:
            files.append(replace(file, groups=good))
    if not files:
        raise DataError(f"data[{draft.name!r}] has no row group that is not corrupt: put good copies back")
    lengths = _joined(result for result in results.values() if not isinstance(result, str))
    return replace(draft, files=tuple(files)), lengths


class _Verification:
    """Reads groups in several threads, and logs how far it is."""

    def __init__(self, draft: Manifest, store: Store, groups: int) -> None:
        self._fetcher = GroupFetcher(draft, store)
        self._columns = draft.columns
        self._name = draft.name
        self._groups = groups
        self._clock = SystemClock()
        self._logged_at = self._clock.now()
        self._done = 0

    def look(self, place: tuple[int, int]) -> Lengths | str:
        """The lengths of lists and bytes in a group; why it is corrupt."""
        try:
            lengths = check_values(self._fetcher.fetch(*place), self._columns, self._fetcher.subject(*place))
        except CorruptGroupError as error:
            return str(error)
        finally:
            self._done += 1
            if self._clock.now() - self._logged_at > _PROGRESS_S:
                self._logged_at = self._clock.now()
                logger.info("data[%r]: %d of %d row groups are verified", self._name, self._done, self._groups)
        return lengths


def _all_groups(files: Sequence[DataFile]) -> list[tuple[int, int]]:
    return [(index, number) for index, file in enumerate(files) for number in range(len(file.groups))]


def _joined(parts: Iterable[Lengths]) -> Lengths:
    return reduce(joined, parts, {})


def _rule(columns: dict[str, Column], name: str) -> object:
    column = columns.get(name)
    return column and (column.kind, column.dtype)


def _type(columns: dict[str, Column], name: str) -> str:
    return columns[name].source if name in columns else "missing"


def _compression(store: Store, files: Sequence[NamedFile], source: FileSource) -> str:
    """The compression of TFRecord files: that of the source, or as the first bytes of a file show."""
    if source.format != "tfrecord" or source.compression:
        return source.compression
    from sparktrain.datasets.tfrecord import HEAD_BYTES, compression_of  # most datasets have other formats

    heads = (store.read_range(file.path, 0, HEAD_BYTES) for file in files)
    return compression_of(next(filter(None, heads), b""))
