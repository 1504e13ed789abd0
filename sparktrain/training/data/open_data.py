"""Opens the datasets of a run in a member: the manifest once for each host, rows when they are needed."""

import os
from collections.abc import Callable

import pyarrow as pa

from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.group_reader import GroupReader
from sparktrain.datasets.host_cache import HostCache
from sparktrain.datasets.manifest import DataRef, Manifest, MemberData, decode, digest_of
from sparktrain.errors import SpecError
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from sparktrain.training.data.position import Position
from sparktrain.training.data.training_data import TrainingData
from sparktrain.training.own_devices import own_cores

STORAGE_KEY = "SPARKTRAIN_LOCAL_STORAGE"
"""The variable with the bytes that a pod may write: neither its disk nor its control groups show them to processes."""


class OpenData:
    """The datasets of one member, each opened once. One thread uses it."""

    def __init__(self, data: MemberData, rank: int, size: int, seed: int, position: Position) -> None:
        self._data = data
        self._rank = rank
        self._size = size
        self._seed = seed
        self._position = position
        self._open: dict[str, tuple[Manifest, GroupReader]] = {}

    def get(self, name: str, is_whole: bool = False) -> TrainingData:
        """The dataset `name`, this member's share of it or all. Blocks on the store the first time.

        Raises SpecError, DataError, StoreError.
        """
        if name not in self._open:
            datasets = self._data.sets
            if name not in datasets:
                hint = f"this run has {', '.join(map(repr, datasets))}" if datasets else "this run was given no data="
                raise SpecError(f"ctx.dataset({shown(name)}): {hint}{did_you_mean(name, datasets)}")
            pa.set_cpu_count(own_cores())
            self._open[name] = open_reader(datasets[name], self._data)
        if is_whole and self._size > 1:  # members differ in such feeds: their passes are not those of the gang
            return TrainingData(*self._open[name], 0, 1, self._seed)
        return TrainingData(*self._open[name], self._rank, self._size, self._seed, self._position)


def open_reader(ref: DataRef, data: MemberData) -> tuple[Manifest, GroupReader]:
    """The manifest of a dataset, and a reader of its rows. Blocks on the store. Raises DataError, OSError."""
    store = open_store(ref.store)
    cache = _lazily(ref, data)
    if isinstance(store, LocalStore):
        content = store.read(ref.path)
    else:
        content = cache().content(lambda: store.read(ref.path), lambda held: digest_of(held) == ref.digest)
    manifest = decode(content, store.where(ref.path), ref.path, ref.digest)
    fetcher = GroupFetcher(manifest, store if ref.files is None else open_store(ref.files))
    return manifest, GroupReader(manifest, fetcher, cache)


def _lazily(ref: DataRef, data: MemberData) -> Callable[[], HostCache]:
    caches: list[HostCache] = []

    def open_cache() -> HostCache:
        if not caches:
            quota = quota_of(data)
            caches.append(
                HostCache(data.cache_dir, ref.digest, data.cache_bytes, ref.store.timeout_s, quota_bytes=quota)
            )
        return caches[0]

    return open_cache


def quota_of(data: MemberData) -> int | None:
    """The bytes that this pod may write, where it holds the cache; None where nothing but the disk bounds that."""
    # A directory that the user names may be on a volume, which the limit does not concern.
    return None if data.cache_dir is not None else int(os.environ.get(STORAGE_KEY) or 0) or None
