"""What the process of a page gets on its standard input beside its endpoint, and what it sends: lines of JSON."""

from msgspec import Struct


class PageSettings(Struct, frozen=True, kw_only=True):
    """What to serve."""

    directory: str
    """The directory of a run, or of several runs: a path or a URL."""
    stops: bool
    """The parent reads requests to stop."""


class StopRequest(Struct, frozen=True):
    """A reader of the page wants a trial, or the run, to stop."""

    trial: int | None
    """None for the run."""
