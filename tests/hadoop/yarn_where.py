"""A training function that tells which Python it runs in; sent to executors as a user's file is."""

import json
import os
import sys
from pathlib import Path


def double(x, marks):
    """A result that is exact, or an error below zero."""
    import numpy

    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    told = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "library": os.__file__,
        "package": numpy.__file__,
        "mapped": sorted({words[5] for words in maps if len(words) > 5 and words[5].startswith("/")}),
        "container": os.getcwd(),
        "outer": os.environ.get("LD_LIBRARY_PATH"),
    }
    Path(marks, str(x)).write_text(json.dumps(told))
    if x < 0:
        raise ValueError(f"x ({x}) is below zero")
    return {"y": 2 * x}
