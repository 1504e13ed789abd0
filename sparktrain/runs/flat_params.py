"""Nested parameters by their paths. Pure."""

from collections.abc import Mapping
from typing import Any


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters by their paths, such as `optimizer.lr`."""
    paths: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            paths |= flat(value, f"{prefix}{name}.")
        else:
            paths[f"{prefix}{name}"] = value
    return paths
