"""Which files differ between two manifests of a dataset, for people. Pure."""

from collections.abc import Iterator

from sparktrain.base import formatting
from sparktrain.base.clock import time_of_day
from sparktrain.datasets.manifest import DataFile, Manifest

_SHOWN = 3
"""So many files of each side are shown."""


def changed_files(name: str, before: Manifest, now: Manifest) -> Iterator[str]:
    """A line for each side of each file of dataset `name` that differs, in order, and how many others do.

    Nothing where other things of the dataset differ, such as its options.
    """
    if before.root != now.root:
        yield from (f"- {name}: {before.root}", f"+ {name}: {now.root}")
        return
    sides = {sign: {file.path: file for file in manifest.files} for sign, manifest in (("-", before), ("+", now))}
    old, new = sides.values()
    differ = [path for path in dict.fromkeys((*old, *new)) if old.get(path) != new.get(path)]
    shown = {path for side in (old, new) for path in [file_path for file_path in differ if file_path in side][:_SHOWN]}
    for path in [file_path for file_path in differ if file_path in shown]:
        yield from (f"{sign} {name}: {_described(side[path])}" for sign, side in sides.items() if path in side)
    if len(differ) > len(shown):
        yield f"... and {formatting.count(len(differ) - len(shown), 'more file')} of {name}"


def _described(file: DataFile) -> str:
    return f"{file.path} ({formatting.size(file.size)} in {file.rows:,} rows, of {time_of_day(file.modified)})"
