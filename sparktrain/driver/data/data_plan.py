"""The datasets of a call, as planning, writing and the run share them. Loads no Arrow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparktrain.base import formatting
from sparktrain.config.data_sources import FrameSource, PushedSource, Source, StreamSource
from sparktrain.datasets.columns import Column
from sparktrain.datasets.manifest import Manifest
from sparktrain.errors import DataError

Show = Callable[[str], None]
"""Prints a line for the user."""


@dataclass(frozen=True)
class DataPlan:
    """The datasets of a call."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    documents: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """What each is, for the plan of the run: a resume compares it."""
    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    """Of the files that members read where they are."""
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)

    @property
    def frames(self) -> tuple[str, ...]:
        """The names of the datasets that only Spark can write."""
        return tuple(
            name
            for name, source in self.sources.items()
            if isinstance(source, FrameSource) and name not in self.manifests
        )

    @property
    def streams(self) -> dict[str, StreamSource | PushedSource]:
        """The streams, by name."""
        return {
            name: source for name, source in self.sources.items() if isinstance(source, StreamSource | PushedSource)
        }


def check_rows(rows: int, subject: str) -> None:
    """Raises DataError for no rows."""
    if not rows:
        raise DataError(f"{subject} has no rows: check its filters and joins, or leave it out")


def check_share(rows: int, members: int, subject: str) -> None:
    """Raises DataError where a member would have no row."""
    if rows < members:
        raise DataError(
            f"{subject} has {formatting.count(rows, 'row')} for {members} members, and each needs at least one: give "
            "more data, or start fewer members (workers=)"
        )
