"""What the process of a board gets on its standard input, as one line of JSON."""

from msgspec import Struct


class BoardSettings(Struct, frozen=True):
    """How to serve."""

    folder: str
    """The local folder with events; the process removes it at its end."""
    descriptor: int
    """The inherited socket, which listens already."""
    port: int
    token: str
    title: str
    """The title of the page."""
