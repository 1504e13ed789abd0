"""What the process of a page gets on its standard input, and what it sends on its standard output: lines of JSON."""

from msgspec import Struct


class PageSettings(Struct, frozen=True):
    """How to serve."""

    directory: str
    """The run directory: a path or a URL."""
    descriptor: int
    """The inherited socket, which listens already."""
    port: int
    token: str
    """Who has it may look, and stop trials and the run where `stops`."""
    reader: str
    """Who has this token may look."""
    stops: bool
    """The parent reads requests to stop."""


class StopRequest(Struct, frozen=True):
    """A reader of the page wants a trial, or the run, to stop."""

    trial: int | None
    """None for the run."""
