"""Which modules a zygote may import before it forks, so that no trial pays for their import."""

import importlib.machinery
import sys
from collections.abc import Collection

from sparktrain.config.gang_spec import ALONE, Backend, GangSpec
from sparktrain.usercode.imports import Imports

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
        "scipy",
        "sklearn",
        "tensorflow",
    }
)
"""Libraries whose import starts no Python thread and touches no device, and that work in a child forked afterwards.

Measured, each in a process of its own: `threading.active_count()` is 1 after the import, and a forked child does real
work (training, BLAS, multi-threaded reads). NumPy and SciPy start OpenBLAS's threads, which a child starts anew when it
needs them, and PyArrow starts one that gives memory back, which a child does without.

Left out: polars, and statsmodels.api, which imports it (threads and locks that do not survive a fork); pyarrow.flight
(gRPC); cv2 (a thread pool of its own); torch, jax, xgboost and lightgbm (not measured).
"""

_UNSAFE_PARTS = ("pyarrow.flight",)

_READ_AT_IMPORT = {
    "KERAS_BACKEND": {"keras"},
    "TF_USE_LEGACY_KERAS": {"keras", "tensorflow"},
    "MPLBACKEND": {"matplotlib"},
    "OMP_NUM_THREADS": SAFE,
    "OPENBLAS_NUM_THREADS": SAFE,
    "MKL_NUM_THREADS": SAFE,
}
"""Environment variables that a library reads when it is imported: code that names one wants to set it before."""
_GIVEN_AT_IMPORT = {
    "TF_CPP_MIN_LOG_LEVEL": {"keras", "tensorflow"},
    "TF_ENABLE_ONEDNN_OPTS": {"keras", "tensorflow"},
}
"""The same, but code that names them need not mean it so: without them the import only says more."""


_FRAMEWORKS = {
    Backend.HOROVOD: frozenset({"horovod.tensorflow", "keras", "tensorflow"}),
    Backend.TENSORFLOW: frozenset({"keras", "tensorflow"}),
    Backend.NONE: frozenset[str](),
}
"""What connects the members of a gang. `horovod.tensorflow` starts its threads in `init()`, which only members call."""


def chosen(imports: Imports, gang: GangSpec = ALONE, env: Collection[str] = ()) -> tuple[str, ...]:
    """The safe modules among those that some code imports, and those that connect its gang, sorted.

    Those are left out that read a variable of `env` when they are imported, or one that the code names.
    """
    excluded = set().union(
        *(names for variable, names in _READ_AT_IMPORT.items() if variable in imports.texts or variable in env),
        *(names for variable, names in _GIVEN_AT_IMPORT.items() if variable in env),
    )
    if not _keras_runs_on_tensorflow():
        excluded.add("keras")
    modules = {_module(name) for name in imports.modules if name.partition(".")[0] in SAFE - excluded}
    safe = {name for name in modules if not name.startswith(_UNSAFE_PARTS)}
    return tuple(sorted(safe | (_connecting(gang) - _with_importers(excluded))))


def _connecting(gang: GangSpec) -> frozenset[str]:
    return _FRAMEWORKS[gang.backend] if gang.size > 1 else frozenset()


def _with_importers(excluded: set[str]) -> set[str]:
    """What must not be imported, with what would import it."""
    return excluded | ({"horovod.tensorflow"} if "tensorflow" in excluded else set())


def _keras_runs_on_tensorflow() -> bool:
    backend = getattr(sys.modules.get("keras"), "backend", None)
    name = getattr(backend, "backend", None)
    return not callable(name) or name() == "tensorflow"


def _module(name: str) -> str:
    """The longest part of dotted `name` that is a module, found without importing one; its first part at least."""
    parts = name.split(".")
    if parts[0] in ("keras", "tensorflow", "h5py", "joblib", "optuna", "pandas", "numpy"):
        return parts[0]  # their import brings the parts along
    spec = importlib.machinery.PathFinder.find_spec(parts[0])
    found = parts[0]
    for part in parts[1:]:
        folders = spec.submodule_search_locations if spec else None
        spec = importlib.machinery.PathFinder.find_spec(part, list(folders)) if folders else None
        if spec is None:
            break
        found = f"{found}.{part}"
    return found
