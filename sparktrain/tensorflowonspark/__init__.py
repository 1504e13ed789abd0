"""The modules and names of TensorFlowOnSpark, for programs that were written for it: a program changes its imports.

`from sparktrain.tensorflowonspark import TFCluster, TFNode, TFParallel, dfutil, pipeline, compat` in place of the
original's line; or `install()` once, and `import tensorflowonspark` gives the same modules.
"""

from importlib import import_module
from typing import Any

from sparktrain.tensorflowonspark.gone import put_in_place

_MODULES = ("TFCluster", "TFNode", "TFParallel", "compat", "dfutil", "gpu_info", "pipeline", "util")
"""Imported when they are used: members need no PySpark, and drivers no TensorFlow."""

globals().update(put_in_place())


def __getattr__(name: str) -> Any:
    if name == "install":
        from sparktrain.tensorflowonspark.installation import install

        return install
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "pipeline":
        from sparktrain.base.optional_packages import require_spark

        require_spark("tensorflowonspark.pipeline")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Names for completion."""
    return [*_MODULES, "install"]


__all__ = [*_MODULES, "install"]
