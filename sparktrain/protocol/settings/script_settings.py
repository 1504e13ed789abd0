"""The settings of libraries that a script makes at its top: what differs from a fresh process, and how a trial gets it.

A function of a script travels without the statements around it, so its trial would train with the defaults. One table
has the settings of each library. The driver reads those of the libraries that it has imported, and a trial applies
them to those that it imports: at once, or when it does. Nothing here imports a library.
"""

import builtins
import decimal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from types import ModuleType
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported
from sparktrain.protocol.settings import import_paths, logging_settings, parsed_flags
from sparktrain.protocol.settings.held_state import Assigned

Values = dict[str, Any]
"""Settings of one library by their names there. What is named `_...` is not shown: a library may have set it itself."""


@dataclass(frozen=True)
class LibrarySettings:
    """How the settings of one library are read and applied."""

    changed: Callable[[Any], Values]
    """Those of the module in this process that differ from a fresh import's."""
    apply: Callable[[Any, str, Any], object]
    """Sets one of them. Raises whatever the library raises for a name or value that it does not know."""


def _by_pairs(pairs: Mapping[str, tuple[object, str, str]]) -> LibrarySettings:
    """Settings with a default, a function that returns them, and one that sets them, by their names in the module."""

    def changed(module: Any) -> Values:
        values = {name: _read(module, getter) for name, (_, getter, _) in pairs.items()}
        return {name: value for name, value in values.items() if value is not _UNKNOWN and value != pairs[name][0]}

    return LibrarySettings(changed, lambda module, name, value: _apply_path(module, pairs[name][2], value))


def _read(module: Any, path: str) -> Any:
    try:
        value = attrgetter(path)(module)
        return value() if callable(value) else value
    except Exception:  # another version of the library
        return _UNKNOWN


def _apply_path(module: Any, path: str, value: Any) -> None:
    """Call the function at `path` with `value`, or set the attribute there."""
    owner_path, _, name = path.rpartition(".")
    owner = attrgetter(owner_path)(module) if owner_path else module
    target = getattr(owner, name)
    if callable(target):
        target(value)
    else:
        setattr(owner, name, value)


def _differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Values:
    return {name: value for name, value in values.items() if name in defaults and value != defaults[name]}


# ---- of Python

_SIGNALS = ("Clamped", "DivisionByZero", "FloatOperation", "Inexact", "InvalidOperation", "Overflow", "Rounded",
            "Subnormal", "Underflow")  # fmt: skip
_CATEGORIES = ("LC_COLLATE", "LC_MONETARY", "LC_NUMERIC", "LC_TIME")


def _of_decimal(context: decimal.Context) -> Values:
    names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    traps = {name for name in _SIGNALS if context.traps[getattr(decimal, name)]}
    return {**{name: getattr(context, name) for name in names}, "traps": sorted(traps)}


def _changed_decimal(module: Any) -> Values:
    return _differing(_of_decimal(module.getcontext()), _of_decimal(decimal.Context(prec=28, rounding="ROUND_HALF_EVEN",
        Emin=-999999, Emax=999999, capitals=1, clamp=0,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow])))  # fmt: skip


def _apply_decimal(module: Any, name: str, value: Any) -> None:
    context = module.getcontext()
    if name == "traps":
        for signal in _SIGNALS:
            context.traps[getattr(module, signal)] = signal in value
    else:
        setattr(context, name, value)


def _changed_locale(module: Any) -> Values:
    current = {name: module.setlocale(getattr(module, name)) for name in _CATEGORIES}
    return {name: value for name, value in current.items() if value not in ("C", "POSIX")}


def _apply_locale(module: Any, name: str, value: Any) -> None:
    module.setlocale(getattr(module, name), value)


def _changed_processes(module: Any) -> Values:
    method = module.get_start_method(allow_none=True)
    return {} if method in (None, module.get_all_start_methods()[0]) else {"start_method": method}


def _apply_processes(module: Any, _: str, value: Any) -> None:
    module.set_start_method(value, force=True)


_of_sys = _by_pairs(
    {
        "recursionlimit": (1000, "getrecursionlimit", "setrecursionlimit"),
        "int_max_str_digits": (4300, "get_int_max_str_digits", "set_int_max_str_digits"),
    }
)


def _changed_sys(module: Any) -> Values:
    added = import_paths.added()
    return {**_of_sys.changed(module), **({"path": added} if added else {})}


def _apply_sys(module: Any, name: str, value: Any) -> None:
    if name == "path":
        import_paths.add(value)
    else:
        _of_sys.apply(module, name, value)


def _changed_warnings(module: Any) -> Values:
    """Categories that are ignored as a whole: libraries add filters of their own messages and categories alone.

    Not those that are errors: the process of a trial has warnings of its own.
    """
    values: Values = {}
    for action, message, category, place, _ in module.filters:
        if message is None and place is None and category.__module__ == "builtins":
            values.setdefault(category.__name__, action)  # the first one decides
    return {name: action for name, action in values.items() if action == "ignore" and name not in _IGNORED}


def _apply_warnings(module: Any, name: str, value: Any) -> None:
    module.simplefilter(value, getattr(builtins, name))


_IGNORED = ("DeprecationWarning", "PendingDeprecationWarning", "ImportWarning", "ResourceWarning")
"""By Python itself."""


# ---- of libraries

_SCIPY_ERRORS = {**dict.fromkeys(("singular", "underflow", "overflow", "slow", "loss", "no_result", "domain", "arg",
    "other"), "ignore"), "memory": "raise"}  # fmt: skip

_JAX: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            "jax_check_tracer_leaks",
            "jax_debug_infs",
            "jax_debug_key_reuse",
            "jax_debug_nans",
            "jax_disable_jit",
            "jax_disable_most_optimizations",
            "jax_enable_checks",
            "jax_enable_custom_prng",
            "jax_enable_x64",
            "jax_explain_cache_misses",
            "jax_high_dynamic_range_gumbel",
            "jax_log_compiles",
            "eager_constant_folding",
        ),
        False,
    ),
    "jax_allow_f16_reductions": True,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_legacy_prng_key": "allow",
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_random_seed_offset": 0,
    "jax_threefry_partitionable": True,
    "jax_traceback_filtering": "auto",
    "jax_transfer_guard": None,
}
"""What decides numbers or errors; devices, caches and platforms are the host's."""
_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_NUMPY_PRINTS: Mapping[str, Any] = {"edgeitems": 3, "threshold": 1000, "floatmode": "maxprec", "precision": 8,
    "suppress": False, "linewidth": 75, "nanstr": "nan", "infstr": "inf", "sign": "-", "legacy": False}  # fmt: skip
_KERAS = {
    "floatx": ("float32", "config.floatx", "config.set_floatx"),
    "epsilon": (1e-7, "config.epsilon", "config.set_epsilon"),
    "image_data_format": ("channels_last", "config.image_data_format", "config.set_image_data_format"),
    "max_epochs": (None, "config.max_epochs", "config.set_max_epochs"),
    "max_steps_per_epoch": (None, "config.max_steps_per_epoch", "config.set_max_steps_per_epoch"),
}
_KERAS_SWITCHES = {
    "interactive_logging": ("is_interactive_logging_enabled", True),
    "traceback_filtering": ("is_traceback_filtering_enabled", True),
    "flash_attention": ("is_flash_attention_enabled", None),
}
_OLD_KERAS = {
    "floatx": ("float32", "backend.floatx", "backend.set_floatx"),
    "epsilon": (1e-7, "backend.epsilon", "backend.set_epsilon"),
    "image_data_format": ("channels_last", "backend.image_data_format", "backend.set_image_data_format"),
}
_TENSORFLOW = {
    "run_functions_eagerly": (False, "config.functions_run_eagerly", "config.run_functions_eagerly"),
    "soft_device_placement": (True, "config.get_soft_device_placement", "config.set_soft_device_placement"),
    "tensor_float_32_execution": (
        True,
        "config.experimental.tensor_float_32_execution_enabled",
        "config.experimental.enable_tensor_float_32_execution",
    ),
    "jit": ("", "config.optimizer.get_jit", "config.optimizer.set_jit"),
}
_TENSORFLOW_1 = {
    "v2_behavior": ("tensorflow.python.tf2", "enabled"),
    "eager_execution": ("tensorflow.python.eager.context", "executing_eagerly"),
}
_UNSET_OPTIONS = {"disable_model_pruning": False, "disable_meta_optimizer": False}
"""What TensorFlow answers of its optimizer's options before any is set."""
_DETERMINISM = "op_determinism"
_NUMPY_BEHAVIOR = "numpy_behavior"
_TORCH = {
    "float32_matmul_precision": ("highest", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    "grad_enabled": (True, "is_grad_enabled", "set_grad_enabled"),
    "anomaly_detection": (False, "is_anomaly_enabled", "autograd.set_detect_anomaly"),
    "backends.cudnn.benchmark": (False, "backends.cudnn.benchmark", "backends.cudnn.benchmark"),
    "backends.cudnn.deterministic": (False, "backends.cudnn.deterministic", "backends.cudnn.deterministic"),
    "backends.cudnn.enabled": (True, "backends.cudnn.enabled", "backends.cudnn.enabled"),
    **{
        f"{kind}_sdp": (True, f"backends.cuda.{kind}_sdp_enabled", f"backends.cuda.enable_{kind}_sdp")
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    },
}
_XGBOOST: Mapping[str, Any] = {"verbosity": 1, "use_rmm": False, "use_cuda_async_pool": False}
_UNKNOWN = object()
_of_keras = _by_pairs(_KERAS)
_of_old_keras = _by_pairs(_OLD_KERAS)
_of_tensorflow = _by_pairs(_TENSORFLOW)
_of_torch = _by_pairs(_TORCH)


def _changed_jax(module: Any) -> Values:
    # By attribute, which has what a context such as `jax.enable_x64(True)` sets for this thread.
    current = {name: _read(module.config, name) for name in _JAX}
    return _differing({name: value.value if isinstance(value, Enum) else value for name, value in current.items()
        if value is not _UNKNOWN}, _JAX)  # fmt: skip


def _changed_keras(module: Any) -> Values:
    """`dtype_policy()` would store the policy of now, and a later `set_floatx()` would no longer change it."""
    values = _of_keras.changed(module)
    for name, (getter, default) in _KERAS_SWITCHES.items():
        if (value := _read(module.config, getter)) not in (_UNKNOWN, default):
            values[name] = value
    with suppress(Exception):  # another version
        policy = sys.modules["keras.src.backend.common.global_state"].get_global_attribute("dtype_policy", None)
        if policy is not None and policy.name != module.config.floatx():
            values["dtype_policy"] = policy.name
    with suppress(Exception):
        if sys.modules["keras.src.saving.serialization_lib"].in_safe_mode() is False:
            values["unsafe_deserialization"] = True
    return values


def _apply_keras(module: Any, name: str, value: Any) -> None:
    if name in _KERAS_SWITCHES:
        getattr(module.config, f"{'enable' if value else 'disable'}_{name}")()
    elif name == "dtype_policy":
        module.config.set_dtype_policy(value)
    elif name == "unsafe_deserialization":
        module.config.enable_unsafe_deserialization()
    else:
        _of_keras.apply(module, name, value)


def _changed_old_keras(module: Any) -> Values:
    values = _of_old_keras.changed(module)
    with suppress(Exception):  # the private place, because the public function stores the policy of now
        policy = sys.modules["tf_keras.src.mixed_precision.policy"]._global_policy
        if policy is not None and policy.name != module.backend.floatx():
            values["dtype_policy"] = policy.name
    return values


def _apply_old_keras(module: Any, name: str, value: Any) -> None:
    if name == "dtype_policy":
        module.mixed_precision.set_global_policy(value)
    else:
        _of_old_keras.apply(module, name, value)


def _changed_numpy(module: Any) -> Values:
    return {**_differing(module.geterr(), _NUMPY_ERRORS), **_differing(module.get_printoptions(), _NUMPY_PRINTS)}


def _apply_numpy(module: Any, name: str, value: Any) -> None:
    (module.seterr if name in _NUMPY_ERRORS else module.set_printoptions)(**{name: value})


def _changed_pandas(module: Any) -> Values:
    """By the place of each option, because `get_option` warns of deprecated ones."""
    config = sys.modules["pandas._config.config"]
    places = {name: config._get_root(name) for name in config._registered_options}
    current = {name: root[key] for name, (root, key) in places.items()}
    return _differing(current, {name: option.defval for name, option in config._registered_options.items()})


def _changed_sklearn(module: Any) -> Values:
    return _differing(module.get_config(), module._config._global_config)


def _changed_tensorflow(module: Any) -> Values:
    values = _of_tensorflow.changed(module)
    for name, (place, getter) in _TENSORFLOW_1.items():
        if _read(sys.modules.get(place), getter) is False:
            values[name] = False
    options = module.config.optimizer.get_experimental_options()
    if set_options := {name: value for name, value in options.items() if value != _UNSET_OPTIONS.get(name)}:
        values["optimizer_options"] = set_options
    with suppress(Exception):
        if sys.modules["tensorflow.python.debug.lib.check_numerics_callback"]._state.check_numerics_callback:
            values["check_numerics"] = True
    with suppress(Exception):  # no public function returns it
        if sys.modules["tensorflow.python.framework.config"].is_op_determinism_enabled():
            values[_DETERMINISM] = True
    with suppress(Exception):
        if hasattr(sys.modules["tensorflow.python.framework.tensor"].Tensor, "T"):
            ops = sys.modules["tensorflow.python.framework.ops"]
            values[_NUMPY_BEHAVIOR] = "all" if ops.is_auto_dtype_conversion_enabled() else "legacy"
    return values


def _apply_tensorflow(module: Any, name: str, value: Any) -> None:
    if name == _DETERMINISM:
        module.config.experimental.enable_op_determinism()
    elif name == "optimizer_options":
        module.config.optimizer.set_experimental_options(value)
    elif name == "check_numerics":
        module.debugging.enable_check_numerics()
    elif name in _TENSORFLOW_1:
        getattr(module.compat.v1, f"disable_{name}")()
    elif name == _NUMPY_BEHAVIOR:
        module.experimental.numpy.experimental_enable_numpy_behavior(dtype_conversion_mode=value)
    else:
        _of_tensorflow.apply(module, name, value)


def _changed_torch(module: Any) -> Values:
    values = _of_torch.changed(module)
    dtype = str(module.get_default_dtype()).removeprefix("torch.")
    values |= {} if dtype == "float32" else {"default_dtype": dtype}
    if module.are_deterministic_algorithms_enabled():
        values["deterministic_algorithms"] = (
            "warn" if module.is_deterministic_algorithms_warn_only_enabled() else "error"
        )
    return values


def _apply_torch(module: Any, name: str, value: Any) -> None:
    if name == "default_dtype":
        module.set_default_dtype(getattr(module, value))
    elif name == "deterministic_algorithms":
        module.use_deterministic_algorithms(True, warn_only=value == "warn")
    else:
        _of_torch.apply(module, name, value)


def _changed_plots(module: Any) -> Values:
    """Without the backends: the ones of a notebook need its kernel."""
    current = {name: dict.__getitem__(module.rcParams, name) for name in module.rcParams if "backend" not in name}
    return _differing(current, module.rcParamsDefault)


LIBRARIES: Mapping[str, LibrarySettings] = {
    "warnings": LibrarySettings(_changed_warnings, _apply_warnings),
    "csv": _by_pairs({"field_size_limit": (2**17, "field_size_limit", "field_size_limit")}),
    "sys": LibrarySettings(_changed_sys, _apply_sys),
    "decimal": LibrarySettings(_changed_decimal, _apply_decimal),
    "locale": LibrarySettings(_changed_locale, _apply_locale),
    "multiprocessing": LibrarySettings(_changed_processes, _apply_processes),
    "logging": LibrarySettings(logging_settings.changed, logging_settings.apply),
    "numpy": LibrarySettings(_changed_numpy, _apply_numpy),
    "scipy.special": LibrarySettings(
        lambda module: _differing(module.geterr(), _SCIPY_ERRORS),
        lambda module, name, value: module.seterr(**{name: value}),
    ),
    "pandas": LibrarySettings(_changed_pandas, lambda module, name, value: module.set_option(name, value)),
    "sklearn": LibrarySettings(_changed_sklearn, lambda module, name, value: module.set_config(**{name: value})),
    "matplotlib": LibrarySettings(_changed_plots, lambda module, name, value: module.rcParams.update({name: value})),
    "xgboost": LibrarySettings(
        lambda module: _differing(module.get_config(), _XGBOOST),
        lambda module, name, value: module.set_config(**{name: value}),
    ),
    "jax": LibrarySettings(_changed_jax, lambda module, name, value: module.config.update(name, value)),
    "keras": LibrarySettings(_changed_keras, _apply_keras),
    "tf_keras": LibrarySettings(_changed_old_keras, _apply_old_keras),
    "tensorflow": LibrarySettings(_changed_tensorflow, _apply_tensorflow),
    "torch": LibrarySettings(_changed_torch, _apply_torch),
    "absl.flags": LibrarySettings(parsed_flags.changed, parsed_flags.apply),
}
"""The settings of each module that are known; floatx stands before the policy that follows from it."""


def changed() -> dict[str, Values]:
    """The settings of this process, of libraries that it has imported, that differ from a fresh process's.

    For the thread that calls with its function: some of them are a thread's own. Imports nothing, raises nothing. In
    place of what cannot be sent stands its error.
    """
    settings: dict[str, Values] = {}
    for name, library in LIBRARIES.items():
        if (module := sys.modules.get(name)) is None:
            continue
        try:
            values = library.changed(module)
        except Exception as error:  # a library of another version
            values = {"settings": error}
        if values:
            settings[name] = values
    return settings


def apply(settings: Mapping[str, Values], failed: Callable[[str, Exception], None]) -> None:
    """Apply settings to the libraries of this process: at once, or when it imports them. Imports nothing.

    `failed` gets the name of each that a library refuses, and its error.
    """
    for name, values in settings.items():
        patch_when_imported(name, _setter(name, values, failed))


def _setter(place: str, values: Values, failed: Callable[[str, Exception], None]) -> Callable[[ModuleType], None]:
    def set_all(module: ModuleType) -> None:
        for name, value in values.items():
            try:
                if isinstance(value, Assigned):
                    value.give(module)
                else:
                    LIBRARIES[place].apply(module, name, value)
            except Exception as error:
                failed(f"{place} {name}", error)

    return set_all


def described(settings: Mapping[str, Values]) -> Iterator[str]:
    """`keras floatx=float64, epsilon=0.001` for each library."""
    for name, values in settings.items():
        if texts := [_described(key, value) for key, value in values.items() if not key.startswith("_")]:
            yield f"{name} {', '.join(texts)}"


def _described(name: str, value: object) -> str:
    if isinstance(value, Assigned):  # a text may be a secret
        text = str(value.value) if isinstance(value.value, bool | int | float) else ""
    else:
        text = "" if isinstance(value, bytes | dict) or callable(value) else str(value)
    return f"{name}={text}" if 0 < len(text) <= _LONGEST else name


def counted(settings: Mapping[str, Values]) -> Iterator[tuple[str, object]]:
    """The settings that may change results and are the same on all hosts: what names them, and their values."""
    for library, values in settings.items():
        for name, value in values.items():
            if library not in _ONLY_SHOWN and name not in _SHOWN_NAMES and not name.startswith("display."):
                yield f"{library} {_described(name, value)}", value.plain() if isinstance(value, Assigned) else value


_LONGEST = 60
_ONLY_SHOWN = frozenset(("logging", "matplotlib", "sys", "warnings", "absl.flags"))
"""Their settings change what a trial prints, or differ between hosts; flags are parameters of one call of a script."""
_SHOWN_NAMES = frozenset((*_NUMPY_PRINTS, "interactive_logging", "traceback_filtering", "verbosity",
    "jax_explain_cache_misses", "jax_log_compiles", "jax_traceback_filtering", "print_changed_only"))  # fmt: skip
