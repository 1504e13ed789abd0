"""A training function that returns the Python it runs in; sent to executors like a user's file."""

import json
import os
import sys
from pathlib import Path

from sparktrain.base.clock import pause


def double(x, marks, ctx):
    """A result that is exact, or an error below zero; 0 is never done in its first generation."""
    import numpy

    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    report = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "library": os.__file__,
        "package": numpy.__file__,
        "mapped": sorted({words[5] for words in maps if len(words) > 5 and words[5].startswith("/")}),
        "container": os.getcwd(),
        "outer": os.environ.get("LD_LIBRARY_PATH"),
    }
    Path(marks, f"{x}-{ctx.generation}").write_text(json.dumps(report))
    if x < 0:
        raise ValueError(f"x ({x}) is below zero")
    while x == 0 and ctx.generation == 1:
        pause(0.1)
    return {"y": 2 * x}
