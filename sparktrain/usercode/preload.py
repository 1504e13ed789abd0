"""Chooses the modules that a zygote imports before it forks, so that no trial pays for their import."""

import importlib.machinery
import sys
from collections.abc import Collection

from sparktrain.config.gang_spec import ALONE, Backend, GangSpec
from sparktrain.usercode.source_imports import Imports

SAFE = frozenset(
    {
        "h5py",
        "joblib",
        "keras",
        "matplotlib",
        "numpy",
        "optuna",
        "pandas",
        "PIL",
        "pyarrow",
        "pyspark",
        "scipy",
        "sklearn",
        "tensorflow",
    }
)
"""Libraries that start no Python thread and use no device on import, and that work in a child forked afterwards.

Measured, each in a separate process: `threading.active_count()` is 1 after the import, and a forked child does real
work (training, BLAS, multi-threaded reads). NumPy and SciPy start OpenBLAS's threads, which a child restarts when
it needs them, and PyArrow starts one that returns memory, which a child does without. PySpark alone starts no JVM and
does not import its Connect client, which uses gRPC.

Left out: polars, and statsmodels.api, which imports it (threads and locks that do not survive a fork); pyarrow.flight
(gRPC); cv2 (a thread pool of its own); torch, jax, xgboost and lightgbm (not measured).
"""

_UNSAFE_PARTS = ("pyarrow.flight",)

_NATIVE = SAFE - {"pyspark"}
"""Libraries that start native threads on import, as many as the environment asks for, or that import such a library."""
_READ_AT_IMPORT = {
    "KERAS_BACKEND": {"keras"},
    "TF_USE_LEGACY_KERAS": {"keras", "tensorflow"},
    "MPLBACKEND": {"matplotlib"},
    "OMP_NUM_THREADS": _NATIVE,
    "OPENBLAS_NUM_THREADS": _NATIVE,
    "MKL_NUM_THREADS": _NATIVE,
}
"""Environment variables that a library reads on import: code that names one wants to set it before."""
_GIVEN_AT_IMPORT = {
    "TF_CPP_MIN_LOG_LEVEL": {"keras", "tensorflow"},
    "TF_ENABLE_ONEDNN_OPTS": {"keras", "tensorflow"},
}
"""The same, but without them the import only logs more, so that code which names them may be ignored."""


_EAGER_PACKAGES = frozenset({"h5py", "joblib", "keras", "numpy", "optuna", "pandas", "pyspark", "tensorflow"})
"""Each of these loads its parts when it is imported; PySpark leaves out those that need NumPy or gRPC."""

_FRAMEWORKS = {
    Backend.HOROVOD: frozenset({"horovod.tensorflow", "keras", "tensorflow"}),
    Backend.TENSORFLOW: frozenset({"keras", "tensorflow"}),
    Backend.PARAMETER_SERVER: frozenset({"keras", "tensorflow"}),
    Backend.NONE: frozenset[str](),
}
"""Modules that connect a gang's members. `horovod.tensorflow` starts threads in `init()`, which only members call."""

_WRAPPED = "sklearn"
"""What `keras.wrappers` imports when one of its names is used: see deferred_wrappers.py."""


def chosen(imports: Imports, gang: GangSpec = ALONE, env: Collection[str] = ()) -> tuple[str, ...]:
    """The safe modules among those that some code imports, and those that connect its gang, sorted.

    Leaves out modules that read a variable of `env`, or one that the code names, when they are imported.
    """
    excluded = set().union(
        *(names for variable, names in _READ_AT_IMPORT.items() if variable in imports.texts or variable in env),
        *(names for variable, names in _GIVEN_AT_IMPORT.items() if variable in env),
    )
    if not _keras_runs_on_tensorflow():
        excluded.add("keras")
    # Keras imports scikit-learn only for its wrappers, so a zygote imports it only where a wrapper is named.
    names = {*imports.modules, *(_WRAPPED for name in imports.modules if name.startswith("keras.wrappers"))}
    modules = {_module(name) for name in names if name.partition(".")[0] in SAFE - excluded}
    safe = {name for name in modules if not name.startswith(_UNSAFE_PARTS)}
    return tuple(sorted(safe | (_connecting(gang) - _with_importers(excluded))))


def _connecting(gang: GangSpec) -> frozenset[str]:
    return _FRAMEWORKS[gang.backend] if gang.size > 1 else frozenset()


def _with_importers(excluded: set[str]) -> set[str]:
    """Modules that must not be imported, and those that would import them."""
    return excluded | ({"horovod.tensorflow"} if "tensorflow" in excluded else set())


def _keras_runs_on_tensorflow() -> bool:
    backend = getattr(sys.modules.get("keras"), "backend", None)
    name = getattr(backend, "backend", None)
    return not callable(name) or name() == "tensorflow"


def _module(name: str) -> str:
    """The longest part of dotted `name` that is a module, found without importing one; its first part at least."""
    parts = name.split(".")
    if parts[0] in _EAGER_PACKAGES:
        return parts[0]
    spec = importlib.machinery.PathFinder.find_spec(parts[0])
    module = parts[0]
    for part in parts[1:]:
        folders = spec.submodule_search_locations if spec else None
        spec = importlib.machinery.PathFinder.find_spec(part, list(folders)) if folders else None
        if spec is None:
            break
        module = f"{module}.{part}"
    return module
