"""The files of a run's datasets: which ones count, and whether they are intact."""

from collections.abc import Iterator

from sparktrain.datasets.manifest import Manifest, decode
from sparktrain.errors import DataError
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store


def manifests_of(store: Store, layout: RunLayout) -> Iterator[tuple[str, Manifest | DataError]]:
    """The path of each manifest of the run, and its content or why it cannot be read. Blocks. Raises OSError."""
    for path in store.list(layout.datasets):
        if layout.is_manifest(path):
            try:
                yield path, decode(store.read(path), store.where(path), path)
            except DataError as error:
                yield path, error


def unnamed_files(store: Store, layout: RunLayout) -> list[str]:
    """Files of datasets that no manifest names: lost attempts of tasks left them. Blocks. Raises OSError.

    None in a folder with a manifest that cannot be read.
    """
    named = set[str]()
    unknown = list[str]()
    for path, manifest in manifests_of(store, layout):
        named.add(path)
        if isinstance(manifest, DataError):
            unknown.append(path.rpartition("/")[0] + "/")
        elif not manifest.root:
            named.update(file.path for file in manifest.files)
    unnamed_paths = [path for path in store.list(layout.datasets) if path not in named]
    return [path for path in unnamed_paths if not path.startswith(tuple(unknown))]


def corrupt_files(store: Store, layout: RunLayout, *, fast: bool) -> Iterator[tuple[str, str]]:
    """Paths of dataset files that trials cannot read, with the reason. Blocks. Raises OSError.

    `fast` compares sizes alone; otherwise every group that sparktrain has written is read and its checksum compared.
    """
    for path, manifest in manifests_of(store, layout):
        if isinstance(manifest, DataError):
            yield path, str(manifest)
        elif not manifest.root:
            yield from _corrupt(store, manifest, fast)


def _corrupt(store: Store, manifest: Manifest, fast: bool) -> Iterator[tuple[str, str]]:
    from sparktrain.datasets.group_fetch import GroupFetcher  # readers of a run without datasets need no Arrow

    fetcher = GroupFetcher(manifest, store)
    for index, file in enumerate(manifest.files):
        where = store.where(file.path)
        try:
            size = store.stat(file.path).size
        except FileNotFoundError:
            yield file.path, f"{where} is missing: put a copy back, or start a new run"
            continue
        if size != file.size:
            yield file.path, f"{where} has {size} bytes in place of {file.size}: put a copy back, or start a new run"
            continue
        try:
            for group in range(0 if fast else len(file.groups)):
                fetcher.fetch(index, group)
        except DataError as error:
            yield file.path, str(error)
