"""Datasets as a driver writes them, without agents, and their rows as members read them."""

from pathlib import Path
from typing import Any

from sparktrain.config.data_sources import sources_of
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.group_reader import GroupReader
from sparktrain.datasets.host_cache import HostCache
from sparktrain.datasets.manifest import Manifest, decode
from sparktrain.driver.data.run_data import plan_data, write_data
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.localfs import LocalStore

LAYOUT = RunLayout("run")


def written(value: Any, runs: Path) -> Manifest:
    """Write a dataset as a driver does, without agents."""
    plan, store = plan_data(sources_of({"train": value}), 60.0), LocalStore(runs)
    ref = write_data(plan, plan.documents, store, LAYOUT, lambda _: None)["train"]
    return decode(store.read(ref.path), ref.path, ref.path, ref.digest)


def reader_of(manifest: Manifest, runs: Path) -> GroupReader:
    return GroupReader(manifest, GroupFetcher(manifest, LocalStore(runs)), lambda: HostCache(runs / "cache", "unused"))


def column(manifest: Manifest, runs: Path, name: str = "id") -> Any:
    """All values of a column, in the order of the dataset."""
    reader = reader_of(manifest, runs)
    return reader.span(0, reader.rows, [name])[name]


def origins(manifest: Manifest) -> list[int]:
    """The partition of each file."""
    return [int(each.origin.removeprefix("partition ")) for each in manifest.files]


def data_files(runs: Path) -> set[str]:
    """The paths of the files of data in a run directory."""
    return {path.relative_to(runs).as_posix() for path in runs.glob("run/data/*/*.arrow")}
