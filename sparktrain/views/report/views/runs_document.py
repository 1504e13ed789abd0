"""Several runs as one document, which the page of a directory of runs shows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sparktrain.runs.listing.run_row import RunRow
from sparktrain.views.report.encoding import Live

if TYPE_CHECKING:  # it loads NumPy, which the table of runs does not need
    from sparktrain.views.report.views.run_detail import RunDetail

VERSION = 1


class RunsDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The runs of a directory. NaN and infinity are null in its JSON."""

    version: int = VERSION
    kind: str
    """`runs`."""
    made: float
    """When, in seconds since 1970."""
    sparktrain: str
    """The version that has made it."""
    directory: str
    rows: Sequence[RunRow | msgspec.Raw]
    left_out: int = 0
    """How many files and folders of the directory are no runs."""
    unread: int = 0
    """How many runs have no row yet."""
    event: int = 0
    """The newest change that it has."""
    live: Live | None = None
    details: Mapping[str, "RunDetail"] = {}
    """What a comparison shows of a run, by the name of its folder; a server sends it on demand."""
    sources: Mapping[str, str] = {}
    """The sources of training functions, by their digests."""


class RunDetails(Struct, frozen=True):
    """What a comparison shows of some runs."""

    details: Mapping[str, "RunDetail"]
    sources: Mapping[str, str]
    problems: Mapping[str, str]
    """Of those that cannot be read."""
