"""What the process of a board gets on its standard input beside its endpoint, as one line of JSON."""

from msgspec import Struct


class BoardSettings(Struct, frozen=True, kw_only=True):
    """What to serve."""

    folder: str
    """The local folder with events; the process removes it at its end."""
    title: str
    """The title of the page."""
