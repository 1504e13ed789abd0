"""Chooses the modules that a zygote imports before it forks, so that no trial pays for their import."""

import fnmatch
import importlib.machinery
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparktrain.config.backends import BACKENDS
from sparktrain.config.environment import JAX, KERAS_BACKEND, TORCH
from sparktrain.config.gang_spec import ALONE, GangSpec
from sparktrain.usercode.environment_writes import ANY
from sparktrain.usercode.source_imports import Imports

SAFE = frozenset(
    {
        "accelerate",
        "catboost",
        "h5py",
        "jax",
        "joblib",
        "keras",
        "lightgbm",
        "lightning",
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
        "torch",
        "transformers",
        "xgboost",
    }
)
"""Libraries that start no Python thread and use no device on import, and that work in a child forked afterwards.

Measured by `benchmarks/fork_safety.py`, each in a process of its own: the threads and OpenMP runtimes that exist after
the import, and how many of 200 forked children train to the end, with 1 and with 4 threads. The table is in
docs/code-and-environment.md. NumPy and SciPy start OpenBLAS's threads, which a child restarts when it needs them, and
PyArrow starts jemalloc's, which return memory, and which a child does without. torch, XGBoost, LightGBM and
scikit-learn load a libgomp each, which starts threads in its first parallel region alone, and JAX makes its client for
its first operation: no zygote runs either, and a child forked after that hangs with all of them. PySpark alone starts
no JVM and does not import its Connect client, which uses gRPC.

Left out: polars, which starts a thread of its own that a child lacks, and statsmodels.api, which imports it;
pyarrow.flight (gRPC); cv2 (a thread pool of its own).
"""

_UNSAFE_PARTS = ("pyarrow.flight",)
_UNSAFE = {
    "cv2": "it starts threads on import, which a fork loses",
    "polars": "it starts a thread on import, which a fork loses",
}
"""Libraries that trials import themselves, with the reason."""
_IMPORTERS = {"catboost": "polars"}
"""Libraries that import an unsafe one where it is installed, and do not use it: trials that do import both."""

_TENSORFLOW = "tensorflow"
_IMPORT_S = {
    "catboost": 1.1,
    "jax": 0.6,
    "keras": 4.0,
    "lightgbm": 1.3,
    "lightning": 2.3,
    "numpy": 0.1,
    "optuna": 0.2,
    "pandas": 0.4,
    "polars": 0.5,
    "pyarrow": 0.1,
    "scipy": 0.8,
    "sklearn": 1.3,
    "tensorflow": 4.2,
    "torch": 5.7,
    "xgboost": 1.3,
}
"""Seconds of a core that an import takes, with what it imports in turn, on two cores of an AMD EPYC."""
_USED_AT_ONCE = {"torch": ("torch._dynamo",), "transformers": ("transformers.trainer",)}
"""Modules that the first use of a library imports, such as any optimizer of torch: each trial would pay for them."""

_NATIVE = SAFE - {"pyspark"}
"""Libraries that start native threads on import, as many as the environment asks for, or that import such a library."""
_READ_AT_IMPORT: dict[str, Collection[str]] = {
    "KERAS_BACKEND": {"keras"},
    "KERAS_HOME": {"keras"},
    "TF_USE_LEGACY_KERAS": {"keras", "tensorflow"},
    "MPLBACKEND": {"matplotlib"},
    "OMP_*": _NATIVE,
    "OPENBLAS_*": _NATIVE,
    "MKL_*": _NATIVE,
    "HF_*": {"accelerate", "lightning", "transformers"},
    "TRANSFORMERS_*": {"lightning", "transformers"},
    "JAX_*": {"jax"},
    "XLA_FLAGS": {"jax"},
    "TORCH_*": {"torch"},
    "RANK": {"lightning"},
    "LOCAL_RANK": {"lightning"},
    "SCIPY_ARRAY_API": {"scipy", "sklearn"},
    "SKLEARN_*": {"sklearn"},
}
"""Environment variables that a library reads on import: what sets one, in code or for trials, does so before."""
_LOGGED_AT_IMPORT = {
    "TF_CPP_MIN_LOG_LEVEL": {"keras", "tensorflow"},
    "TF_ENABLE_ONEDNN_OPTS": {"keras", "tensorflow"},
}
"""The same, but without them the import only logs more, so that code which sets them may be ignored."""

_EAGER_PACKAGES = frozenset(
    {
        "accelerate",
        "h5py",
        "jax",
        "joblib",
        "keras",
        "lightgbm",
        "lightning",
        "numpy",
        "optuna",
        "pandas",
        "pyspark",
        "tensorflow",
        "torch",
        "xgboost",
    }
)
"""Each of these loads its parts when it is imported; PySpark leaves out those that need NumPy or gRPC."""

_WRAPPED = "sklearn"
"""What `keras.wrappers` imports when one of its names is used: see deferred_wrappers.py."""


_KERAS_ON = "sparktrain.training.frameworks.keras.preloads.on_"
"""The start of the modules that import Keras on another backend than TensorFlow: on JAX, or on PyTorch."""
_POOL = ("numpy", "keras", "tensorflow")
"""What a pool imports by default: TensorFlow takes longest of all, and is what most calls use."""
_POOL_OTHERS = ("jax", "lightgbm", "sklearn", "torch", "xgboost")


@dataclass(frozen=True)
class PreloadChoice:
    """What a zygote imports, and what it leaves to its trials though their code imports it."""

    modules: tuple[str, ...]
    """Sorted."""
    notes: tuple[str, ...] = ()
    """A line for each reason why something is left to the trials, with what that costs each of them."""


@dataclass(frozen=True)
class KerasInTrials:
    """The backend of Keras that all trials of a function have."""

    backend: str
    by_code: bool = False
    """Whether the function chooses it whenever it runs: then it may set the variable for that."""


def chosen(
    imports: Imports, gang: GangSpec = ALONE, env: Collection[str] = (), keras: KerasInTrials | None = None
) -> PreloadChoice:
    """The safe modules among those that some code imports, and those that connect its gang.

    Leaves out modules that read a variable of `env`, or one that the code may set, when they are imported. `keras` is
    None where the backend that Keras has in all trials is not known.
    """
    variables = _variables(imports)
    other = _other_backend(imports, keras, variables)
    # A module of its own imports Keras on that backend, whatever the variable has then.
    chosen_before = {KERAS_BACKEND} if other else set()
    env = {*env} - chosen_before
    variables -= env | chosen_before
    by_code = _readers(_READ_AT_IMPORT, variables)
    by_call = _readers(_READ_AT_IMPORT | _LOGGED_AT_IMPORT, env)
    excluded = {*by_code, *by_call}
    backend = other or _keras_backend()
    other = "" if excluded & {"keras", other} else other
    if backend != _TENSORFLOW:
        excluded.add("keras")
    # TensorFlow imports Keras, which keeps the backend that it has then.
    brings_keras = "keras" in excluded and gang.keras_backend != _TENSORFLOW and _TENSORFLOW not in excluded
    if brings_keras:
        excluded.add(_TENSORFLOW)
    # Keras imports scikit-learn only for its wrappers, so a zygote imports it only where a wrapper is named.
    names = {*imports.modules, *(_WRAPPED for name in imports.modules if name.startswith("keras.wrappers"))}
    names |= {other} if other else set()
    tops = {name.partition(".")[0] for name in names}
    importers = sorted(name for name, unsafe in _IMPORTERS.items() if {name, unsafe} <= tops)
    modules = {_module(name) for name in names if name.partition(".")[0] in SAFE - excluded - {*importers}}
    safe = {name for name in modules if not name.startswith(_UNSAFE_PARTS)}
    safe |= {part for name in safe for part in _USED_AT_ONCE.get(name, ())}
    notes = [
        *(f"{_imported([name])}: {_UNSAFE[name]}" for name in sorted(tops & _UNSAFE.keys())),
        *(f"{_imported([name])}: it imports {_IMPORTERS[name]}" for name in importers),
        *_notes(by_code, tops, "the code"),
        *_notes(by_call, tops, "the call"),
    ]
    if brings_keras and _TENSORFLOW in tops:
        notes.append(f"{_imported([_TENSORFLOW])}: it imports Keras")
    if other:
        safe.add(f"{_KERAS_ON}{other}")
    elif backend != _TENSORFLOW and "keras" in tops:
        notes.append(f"{_imported(['keras'])}: here it runs on {backend}")
    return PreloadChoice(tuple(sorted(safe | (_connecting(gang) - _with_importers(excluded)))), tuple(notes))


def shared(modules: Collection[str]) -> tuple[str, ...]:
    """Those of the modules of a run that zygotes of a pool import, too: other runs may have Keras on other backends."""
    return tuple(name for name in modules if not name.startswith(_KERAS_ON))


def libraries(modules: Collection[str]) -> tuple[str, ...]:
    """Those of `modules` that any number of zygotes may be forked with: safe ones, and no code of the user."""
    tops = SAFE | {"horovod", "sparktrain"}
    return tuple(name for name in modules if name.partition(".")[0] in tops and not name.startswith(_UNSAFE_PARTS))


def keras_left_by_pool(modules: Collection[str], pool: Collection[str]) -> str:
    """The line for a run with these modules in a `pool` that has imported its own; empty where none is left."""
    if all(name in pool or not name.startswith(_KERAS_ON) for name in modules):
        return ""
    return f"{_imported(['keras'])}: the pool may train on other backends"


def pool_modules(keras: str = "") -> tuple[str, ...]:
    """What the zygotes of a pool import before its first call, when its functions are unknown.

    Keras on JAX or PyTorch where `keras`, the backend that this process and its user have set, is one of these; the
    other frameworks that this process has imported where TensorFlow is not among them, as in a notebook of torch;
    NumPy, Keras and TensorFlow otherwise. A call adds what its function uses.
    """
    if keras in (JAX, TORCH):
        return ("numpy", keras, *_USED_AT_ONCE.get(keras, ()), f"{_KERAS_ON}{keras}")
    others = [name for name in _POOL_OTHERS if name in sys.modules]
    if not others or _TENSORFLOW in sys.modules:
        return _POOL
    return ("numpy", *others, *(part for name in others for part in _USED_AT_ONCE.get(name, ())))


def _other_backend(imports: Imports, keras: KerasInTrials | None, variables: Collection[str]) -> str:
    """The backend of Keras that code certainly has; empty for TensorFlow, and where it depends."""
    imports_keras = any(name.partition(".")[0] == "keras" for name in imports.modules)
    if keras is None or not imports_keras or keras.backend not in (JAX, TORCH):
        return ""
    return keras.backend if keras.by_code or KERAS_BACKEND not in variables else ""


def _variables(imports: Imports) -> set[str]:
    """The variables that the code may set: all that it names, where it computes the name of one."""
    # `for name in NAMES: os.environ[name] = "1"` may have the names in another file.
    return imports.variables | (imports.texts if ANY in imports.variables else set())


def _readers(table: Mapping[str, Collection[str]], variables: Collection[str]) -> dict[str, set[str]]:
    """For each library that reads some of `variables` on import, those that it reads."""
    readers: dict[str, set[str]] = {}
    for pattern, libraries in table.items():
        for variable in fnmatch.filter(variables, pattern):
            for library in libraries:
                readers.setdefault(library, set()).add(variable)
    return readers


def _notes(readers: Mapping[str, Collection[str]], tops: Collection[str], setter: str) -> Iterator[str]:
    """A line for each set of variables that keeps some of the libraries `tops` from the zygote."""
    by_variables: dict[tuple[str, ...], list[str]] = {}
    for library in sorted(readers.keys() & tops):
        by_variables.setdefault(tuple(sorted(readers[library])), []).append(library)
    for variables, libraries in by_variables.items():
        yield (
            f"{_imported(libraries)}: read on import, {_listed(variables)} {_are(variables)} set by {setter}; "
            f"preload={libraries} imports {'it' if len(libraries) == 1 else 'them'} before"
        )


def _imported(libraries: Sequence[str]) -> str:
    """The start of a line: what trials import themselves, and how long that takes where it is known."""
    costs = [f"{name} ({_IMPORT_S[name]:.1f} s)" if name in _IMPORT_S else name for name in libraries]
    return f"{_listed(costs)} {_are(libraries)} imported in each trial"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last


def _connecting(gang: GangSpec) -> frozenset[str]:
    return BACKENDS[gang.backend].preload if gang.size > 1 else frozenset()


def _with_importers(excluded: set[str]) -> set[str]:
    """Modules that must not be imported, and those that would import them."""
    return excluded | ({"horovod.tensorflow"} if "tensorflow" in excluded else set())


def _keras_backend() -> str:
    """The back end of the Keras that this process has imported; TensorFlow where it has imported none."""
    backend = getattr(sys.modules.get("keras"), "backend", None)
    name = getattr(backend, "backend", None)
    return str(name()) if callable(name) else _TENSORFLOW


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
