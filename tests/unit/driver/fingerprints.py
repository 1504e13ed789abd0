"""A program with a function to take fingerprints of."""

import sys
import types
from collections.abc import Callable
from typing import Any

from sparktrain.usercode.fingerprint import fingerprint
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import Target

SOURCE = """
import functools
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path

import numpy as np

NAMES = {"a", "b", "cc", "dd"}
NUMBERS = np.arange(5)
OBJECTS = np.array(["a", None, Decimal(3)], dtype=object)
DAYS = np.array(["2026-01-31"], dtype="datetime64[D]")
PLACE = Path("/data") / "images"
LIST = [1, 2.5]
LIST.append(LIST)


class Kind(Enum):
    ONE = 1


@dataclass(slots=True)
class Config:
    lr: float = 0.5


class Base:
    def shared(self):
        return 1


class Net(Base):
    size = 3

    def __init__(self, x):
        self.x = x

    def go(self):
        return self.x in ("q", "w") or self.x in {"u", "v", "z"}

    @staticmethod
    def still():
        return 2

    @classmethod
    def made(cls):
        return cls(4)

    @property
    def twice(self):
        return 2 * self.x


CONFIG = Config(0.3)
NET = Net(5)


@functools.lru_cache
def cached(x):
    return x + 1


def helper(x, y={"k": 1}):
    return (lambda z: z in {"one", "two", "three"})(x) and (x, y, json.dumps(x))


def train(lr, optimizer="sgd", *, ctx):
    class Local:
        width = 7

    def inner(q):
        return q in {"alpha", "beta", "gamma"} or cached(q)

    used = CONFIG, NET, NUMBERS, OBJECTS, DAYS, PLACE, LIST, NAMES, Kind.ONE, Local, Net.made()
    return inner(lr) or helper(3) or used or 1e-3
"""


def parts(function: Callable[..., Any]) -> dict[str, str]:
    return fingerprint(Target.of(function), pack(function))


def defined(source: str) -> dict[str, str]:
    """The parts of `train` of a notebook or script with this source."""
    names: dict[str, Any] = {"__name__": "__main__"}
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        sys.modules["__main__"].__dict__.update(names)
        exec(compile(source, "<cell>", "exec"), sys.modules["__main__"].__dict__)
        return parts(sys.modules["__main__"].train)
    finally:
        sys.modules["__main__"] = main
