"""Documents as JSON, and what every one of a served page has: a process that serves loads no views for these."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct


class Live(Struct, frozen=True):
    """What a reader of a served page may do."""

    rights: tuple[str, ...]
    """`stop`, or none."""
    csrf: str
    """The token that a request which changes something must have."""
    all_runs: str = ""
    """The relative address of the page of all runs of the directory; empty where there is none."""


def encoded(document: Struct | Sequence[Any]) -> bytes:
    """The JSON of a document, or of a part of it: NaN and infinity as null."""
    return msgspec.json.encode(document)
