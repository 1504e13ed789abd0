"""Writes the rows of DataFrames and tables as datasets of a run."""

from typing import Any
from uuid import uuid4

from sparktrain.base import formatting
from sparktrain.base.clock import SystemClock
from sparktrain.cluster.dataframes.frame_writer import FILE_BYTES, WriteTask, write_frame, write_part
from sparktrain.config.data_sources import FrameSource
from sparktrain.datasets.manifest import Manifest
from sparktrain.datasets.values import Lengths, joined, shaped
from sparktrain.driver.data.data_plan import DataPlan, Show, check_rows
from sparktrain.errors import RunDirectoryError
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore

MANY_FILES = 64
SMALL_BYTES = 2**20
"""So many files below this size on average are worth a hint."""


def written_manifest(plan: DataPlan, name: str, folder: str, store: Store, show: Show) -> Manifest:
    """The manifest of a dataset, after its rows were written where that is needed."""
    if name in plan.manifests:
        return plan.manifests[name]
    source = plan.sources[name]
    subject = f"data[{name!r}]"
    columns = plan.columns[name]
    task = WriteTask(store.address, folder, columns, subject, dict(source.pad))  # type: ignore[union-attr]
    clock = SystemClock()
    started = clock.now()
    if isinstance(source, FrameSource):
        show(f"{subject}: writing the DataFrame to {store.where(folder)}")
        frame = source.frame if source.partitions is None else source.frame.repartition(source.partitions)
        parts = write_frame(frame, task)
    else:
        parts = [write_part(task, iter(source.table.to_batches()), 0, f"table-{uuid4().hex[:8]}")]  # type: ignore[union-attr]
    files = tuple(file for part in parts for file in part.files)
    check_rows(sum(file.rows for file in files), subject)
    _check_reachable(files, store, subject)
    lengths: Lengths = {}
    for part in parts:
        lengths = joined(lengths, part.lengths)
    size = sum(file.size for file in files)
    show(f"{subject}: wrote {formatting.size(size)} in {formatting.duration(clock.now() - started)}")
    if len(files) >= MANY_FILES and size < len(files) * SMALL_BYTES:
        show(
            f"{subject}: its {len(files)} partitions are small, and each costs a task and a file: pass "
            f"sparktrain.data.dataframe(df, partitions={max(1, size // FILE_BYTES) * 8}) to write it faster"
        )
    return Manifest(
        name=name,
        format="groups",
        columns=shaped(columns, lengths, subject),
        files=files,
        schema=next(part.schema for part in parts if part.schema),
        pad=dict(source.pad),  # type: ignore[union-attr]
    )


def _check_reachable(files: tuple[Any, ...], store: Store, subject: str) -> None:
    """Check that what tasks wrote is where this process reads it: a local directory differs between hosts."""
    # A local path exists on each host, with other files: the executors' writes succeed, and only a look from here shows
    # it.
    for file in files if isinstance(store, LocalStore) else files[:1]:
        try:
            file_stat = store.stat(file.path)
        except FileNotFoundError:
            file_stat = None
        if file_stat is None or file_stat.size != file.size:
            raise RunDirectoryError(
                f"{subject}: executors wrote {store.where(file.path)}, and this driver does not see it: dir= must be "
                "storage that all hosts share, such as hdfs:/// or an NFS path"
            )
