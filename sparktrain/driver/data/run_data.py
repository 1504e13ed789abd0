"""The datasets of a run: checked before anything starts, written once into its directory, found again by a resume.

`data_planning` and `data_writing` do the work where a call has data: both load Arrow.
"""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from sparktrain.base import formatting
from sparktrain.config.data_sources import PushedSource, Source, is_frame
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.manifest import DataFile, DataRef, Manifest, changed_files, decode, digest_of
from sparktrain.driver.data.data_plan import DataPlan, Show, check_share
from sparktrain.errors import DataError, ResumeError, SessionError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.next_commands import STREAM
from sparktrain.store.base import Store
from sparktrain.store.parallel import spread
from sparktrain.store.url import open_store

_THREADS = 8

logger = logging.getLogger("sparktrain")


def plan_data(
    sources: Mapping[str, Source], timeout_s: float, members: int = 1, version: str | None = None
) -> DataPlan:
    """Check types and files of all datasets, and that each of `members` gets a row of files and tables.

    Blocks on the stores of files, and on a Connect server for schemas.

    `version` is the user's name for the version of the data: with another one, a dataset is written again. Raises
    DataError, SessionError; nothing is written, and no Spark job runs.
    """
    if not sources:
        return DataPlan()
    from sparktrain.driver.data.data_planning import planned  # few runs need Arrow in their driver

    return planned(sources, timeout_s, members, version)


def stored_data(documents: Mapping[str, Any], store: Store, layout: RunLayout) -> DataPlan:
    """The datasets that a run has, for another run, which reads them where they are. Streams are stored nowhere.

    Blocks on the store. Raises DataError for a dataset that was never written, or has a corrupt manifest.
    """
    manifests = dict[str, Manifest]()
    for name, document in documents.items():
        if document["kind"] == STREAM:
            continue
        path = _manifest_path(layout, name, document)
        try:
            manifest = decode(store.read(path), store.where(path), path)
        except FileNotFoundError:
            raise DataError(
                f"data[{name!r}] of {store.where(layout.path)} has no manifest ({store.where(path)}), so it was not "
                "written, or was deleted: pass it again in data="
            ) from None
        manifests[name] = msgspec.structs.replace(manifest, root=manifest.root or store.address.url)
    return DataPlan(
        documents={name: documents[name] for name in manifests},
        manifests=manifests,
        columns={name: manifest.columns for name, manifest in manifests.items()},
    )


def missing(documents: Mapping[str, Any], store: Store, layout: RunLayout) -> list[str]:
    """The datasets of a run that its directory does not have yet. Blocks on the store."""
    return [
        name
        for name, document in documents.items()
        if document["kind"] != STREAM and not store.exists(_manifest_path(layout, name, document))
    ]


def changes_of(before: Mapping[str, Any], plan: DataPlan, store: Store, layout: RunLayout) -> list[str]:
    """The lines about files that differ between the run's datasets and those of the call. Blocks on the store.

    `before` are the documents of the run's plan, which have digests alone; the manifests that it has written have the
    names. Nothing for a dataset without one.
    """
    lines: list[str] = []
    for name, document in before.items():
        now = plan.manifests.get(name)
        if now is None or document.get("files") in (None, now.digest):
            continue
        path = _manifest_path(layout, name, document)
        with suppress(OSError, DataError):  # without it, the digests are still reported
            lines += changed_files(name, decode(store.read(path), path, path), now)
    return lines


def write_data(
    plan: DataPlan, documents: Mapping[str, Any], store: Store, layout: RunLayout, show: Show, members: int = 1
) -> dict[str, DataRef]:
    """Write what the run directory does not have; returns where members find each dataset. Blocks.

    `documents` are those of the run's plan, `members` how many share the rows. Raises DataError, ResumeError where a
    dataset is missing and has no source here, OSError, and Spark's error for a job that fails.
    """
    for name, dataset in documents.items():
        if dataset["kind"] == STREAM and name not in plan.sources:
            raise ResumeError(
                f"data[{name!r}] of the run at {store.where(layout.path)} is a stream, which is stored nowhere: repeat "
                "the call that started the run, with its data"
            )
    stored = {name: document for name, document in documents.items() if document["kind"] != STREAM}
    return {name: _written(plan, name, document, store, layout, show, members) for name, document in stored.items()}


def _written(
    plan: DataPlan, name: str, document: dict[str, Any], store: Store, layout: RunLayout, show: Show, members: int
) -> DataRef:
    folder = layout.dataset(name, _digest(document))
    path = _manifest_path(layout, name, document)
    try:
        content = store.read(path)
    except FileNotFoundError:
        if name not in plan.sources and name not in plan.manifests:
            raise ResumeError(
                f"data[{name!r}] of the run at {store.where(layout.path)} was not written before its driver ended: "
                "repeat the call that started the run, with its data"
            ) from None
        from sparktrain.driver.data.data_writing import written_manifest

        written = written_manifest(plan, name, folder, store, show)
        check_share(written.rows, members, f"data[{name!r}]")  # without a manifest, the same call writes other rows
        content = written.encode()
        # Of two drivers that write the same dataset, the first manifest counts: all members must read one set of rows.
        if not store.put_if_absent(path, content):
            content = store.read(path)
    manifest = decode(content, store.where(path), path)
    # Files outside of the run directory may have changed since the run was planned: members would read other rows than
    # those before.
    if manifest.root and name not in plan.sources:
        _check_files(manifest, store.address.timeout_s)
    check_share(manifest.rows, members, f"data[{name!r}]")
    rows = f"{manifest.rows:,} row{'s' * (manifest.rows != 1)}"
    show(f"data[{name!r}]: {rows} in {formatting.count(len(manifest.files), 'file')}")
    files = (
        open_store(StoreAddress(manifest.root, timeout_s=store.address.timeout_s)).address if manifest.root else None
    )
    return DataRef(store.address, path, digest_of(content), files)


def check_sessions(plan: DataPlan, holder: object) -> None:
    """Check that DataFrames belong to the session with this `Engine.holder`. Raises SessionError."""
    for name in (*plan.frames, *plan.streams):
        source = plan.sources[name]
        if isinstance(source, PushedSource):  # its calls check what they send
            continue
        frame = source.frame  # type: ignore[union-attr]
        if _holder(frame) is not holder:
            kind = "a DataFrame" if is_frame(frame) else "an RDD"
            raise SessionError(
                f"data[{name!r}] is {kind} of {_named(_holder(frame))}, and {_named(holder)} trains: pass its own "
                "session as spark=, or write it to files and pass their path"
            )


def _named(holder: Any) -> str:
    """Where DataFrames belong, for messages: see `Engine.holder`."""
    application = getattr(holder, "applicationId", None)
    return f"the application {application}" if application else f"the Connect session {holder.session_id}"


def _holder(frame: Any) -> object:
    """The `Engine.holder` of the session of a DataFrame, or of an RDD."""
    return (getattr(frame.sparkSession, "_sc", None) or frame.sparkSession) if is_frame(frame) else frame.ctx


def _manifest_path(layout: RunLayout, name: str, document: Mapping[str, Any]) -> str:
    """Where the manifest of a dataset is, or will be, by its document in the plan."""
    return layout.data_manifest(name, _digest(document))


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(document, order="deterministic")).hexdigest()[:12]


def _check_files(manifest: Manifest, timeout_s: float) -> None:
    """Check before agents start that the files outside of the run directory are those of the manifest.

    Blocks on their store. Raises DataError.
    """
    files = open_store(StoreAddress(manifest.root, timeout_s=timeout_s))
    if manifest.format == "groups":  # of another run: each group has a checksum, which its reader compares
        spread(lambda file, _: _check_there(files, file), manifest.files, _THREADS)
        return
    from sparktrain.datasets.file_formats import check_unchanged  # it loads Arrow

    spread(lambda file, _: check_unchanged(files, file), manifest.files, _THREADS)


def _check_there(files: Store, file: DataFile) -> None:
    with suppress(FileNotFoundError):
        if files.stat(file.path).size == file.size:
            return
    raise DataError(
        f"{files.where(file.path)} is gone, or has another size than {file.size:,} bytes: the run reads it in the "
        "directory of the sweep that it continues, which must stay while the run trains; put it back, or pass data= "
        "again"
    )
