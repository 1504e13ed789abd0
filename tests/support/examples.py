"""How many examples a property has that states their number."""

from typing import Any

from hypothesis import settings

_USUAL = 100
"""Of the profile of `make test`."""


def examples(count: int, **others: Any) -> settings:
    """`count` examples in `make test`, and as small a share of them as other properties have in `make test-unit`."""
    return settings(max_examples=max(1, count * settings().max_examples // _USUAL), deadline=None, **others)
