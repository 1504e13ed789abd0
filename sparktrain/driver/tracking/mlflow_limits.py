"""What MLflow takes: names, lengths, and how much at a time. Limits are those of `mlflow.utils.validation`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sparktrain.driver.tracking.callback import TrackedReport

METRICS = 1000
PARAMS = 100
TAGS = 100
"""Most entries of a batch."""
KEY_CHARS = 250
PARAM_CHARS = 6000
TAG_CHARS = 5000
"""Most characters, of MLflow 3; of a tag as many as older servers take, too."""

_FORBIDDEN = re.compile(r"[^\w\-. /]", re.ASCII)

T = TypeVar("T")
Point = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, and step."""


def key_of(name: str) -> str:
    """A name that MLflow takes: other characters become `_`, and it is a path that stays below its root.

    >>> key_of("f1@0.5 <val>"), key_of("../x"), key_of("/a//b/")
    ('f1_0.5 _val_', '_/x', 'a/b')
    """
    parts = [part for part in _FORBIDDEN.sub("_", name).split("/") if part]
    return "/".join("_" if set(part) == {"."} else part for part in parts)[:KEY_CHARS].rstrip("/") or "_"


def text_of(value: object, limit: int) -> str:
    """A value as text of at most `limit` characters; the end of a longer one is `...`."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def params_of(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Parameters as MLflow keeps them; a nested one has its path as name.

    >>> params_of({"lr": 0.1, "optimizer": {"name": "sgd"}})
    {'lr': '0.1', 'optimizer.name': 'sgd'}
    """
    flat_params: dict[str, str] = {}
    for name, value in params.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            flat_params |= params_of(value, f"{path}.")
        else:
            flat_params[key_of(path)] = text_of(value, PARAM_CHARS)
    return flat_params


def points_of(reports: Sequence[TrackedReport]) -> list[Point]:
    """Reports as points with their own times, so that MLflow drops what it has already."""
    return [
        (key_of(name), float(value), round(report.time * 1000), report.step)
        for report in reports
        for name, value in report.metrics.items()
    ]


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, at most `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))
