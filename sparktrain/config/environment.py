"""Checks the environment variables that trials get, and reads the one that chooses the backend of Keras."""

import json
import os
import re
from collections.abc import Mapping, Sequence

from sparktrain.config.param_values import described, native, shown
from sparktrain.errors import SpecError

MOST_BYTES = 2**17
"""Limit of all names and values together: a program with more could not start another one."""
OWN_PREFIX = "SPARKTRAIN_"
KERAS_BACKEND = "KERAS_BACKEND"
TENSORFLOW = "tensorflow"
"""The default of Keras."""
TORCH = "torch"
JAX = "jax"
GANG_BACKENDS = frozenset({TENSORFLOW, TORCH, JAX})
"""Those that have a backend of gangs of the same name."""
TITLES = {TENSORFLOW: "TensorFlow", TORCH: "PyTorch", JAX: "JAX"}
"""What messages call them."""
KERAS_BACKENDS = frozenset({TENSORFLOW, JAX, TORCH, "numpy", "openvino"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*")
_AT_START = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP"})
"""Variables that a program reads at its start, which is too late for a forked trial."""


def variables(value: object, subject: str = "env") -> dict[str, str]:
    """`value` when it maps names to text; numbers become text. Raises SpecError, which shows no value."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{subject} is {type(value).__name__}, a dict is expected: write {{'NAME': 'value'}}")
    texts = {_name(name, subject): _text(str(name), raw_value, subject) for name, raw_value in value.items()}
    if (size := sum(len(f"{name}={text}".encode()) + 1 for name, text in texts.items())) > MOST_BYTES:
        raise SpecError(f"{subject} has {size} bytes, {MOST_BYTES} can be passed on: put what is long into a file")
    return texts


def patterns(value: object, subject: str = "forward_env") -> tuple[str, ...]:
    """`value` when it lists names of variables, with an optional `*` at the end. Raises SpecError."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError(f"{subject} is {described(value)}, a list of names is expected: write ['WANDB_*']")
    for pattern in value:
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise SpecError(f"{subject} ({shown(pattern)}) must be a name such as 'HF_HOME', or a prefix: 'WANDB_*'")
        if not pattern.endswith("*"):
            _name(pattern, subject)
    return tuple(value)


def may_be_set(name: str) -> bool:
    """Whether a trial may get a variable of that name."""
    return name not in _AT_START and not name.startswith(OWN_PREFIX)


def keras_backend(env: Mapping[str, str]) -> tuple[str, str] | None:
    """The backend that Keras takes in a process with the environment `env` of this host, and where that is set.

    None where Keras's own default counts. Blocks on the local disk.
    """
    if env.get(KERAS_BACKEND):
        return env[KERAS_BACKEND], f"the variable {KERAS_BACKEND}"
    home = env.get("KERAS_HOME") or os.path.join(env.get("HOME") or "~", ".keras")
    file = os.path.expanduser(os.path.join(home, "keras.json"))
    try:
        with open(file, encoding="utf-8") as opened:
            backend = json.load(opened).get("backend")
    except (OSError, ValueError, AttributeError):  # Keras has an error of its own for other files
        return None
    return (backend, file) if isinstance(backend, str) else None


def refusal_in_gang(backend: str, place: str, trains: str = TENSORFLOW) -> str:
    """The sentence for a gang in which `place`, such as a line or `env=`, asks for a backend of Keras.

    `trains` is the one by which its members train; empty for that, and where no backend is asked for.
    """
    if backend in ("", trains):
        return ""
    way = f"pass backend={backend!r}, " if backend in GANG_BACKENDS else ""
    return (
        f"{place} asks Keras for the backend {backend!r}, and the members of a gang train by {TITLES[trains]}: let "
        f"Keras use {trains!r} there, {way}or train with one worker, which may use any backend"
    )


def _name(name: object, subject: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SpecError(
            f"{subject}: {shown(name)} is not the name of a variable: names have letters, digits and '_'; correct it"
        )
    if name in _AT_START:
        raise SpecError(
            f"{subject}: {name} is read when a program starts, and a trial is forked from one that has started: set it "
            f"for executors, by spark.executorEnv.{name}"
        )
    if not may_be_set(name):
        raise SpecError(f"{subject}: {name} is sparktrain's own: choose another name")
    return name


def _text(name: str, value: object, subject: str) -> str:
    value = native(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or "\0" in value:
        problem = "has a NUL" if isinstance(value, str) else f"is {type(value).__name__}"
        raise SpecError(f"{subject}: the value of {name} {problem}, text is expected: write it in quotes")
    return value
