"""The state of a Keras model: every variable that training changes, by name, and the random generators.

Keras 3's own files lack the states of seed generators, so that a model with dropout resumes with other numbers; here
they are part of the state.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sparktrain.config.environment import TENSORFLOW
from sparktrain.errors import UserError
from sparktrain.training.checkpoint.member_slices import MemberSlices, copied
from sparktrain.training.checkpoint.tensor_files import (
    MEMBER,
    MEMBER_BYTES,
    Array,
    TensorFiles,
    source_rank,
)
from sparktrain.training.checkpoint.tensor_slices import Index, TensorSlice
from sparktrain.training.frameworks.imported import split_arrays
from sparktrain.training.frameworks.keras.keras_framework import backend_in_use

SEEDS = "seeds/"
METRICS = "metrics/"
OWN_OPTIMIZERS = "optimizers/"
"""Prefix of a model's optimizers beside that of `compile()`; without a build they have no variables."""
GLOBAL_SEED = "global_seed"
"""The name of the state of Keras's generator for random operations without a seed of their own."""

_SHOWN = 5
"""How many differing variables an error names, of each kind."""
_COUNTER = re.compile(r"_\d+(?=[_/#]|$)")
"""The suffix that Keras appends to the names of layers after the first of a kind in a process."""


def named(model: Any) -> dict[str, Any]:
    """All variables of a built model by name: its own, those of its seed generators, its optimizers and its metrics.

    Builds the optimizer. Raises UserError when the model is not built.
    """
    from sparktrain.training.frameworks.keras.distributed_apply import own_optimizers

    if not model.built:
        raise UserError(
            f"model {model.name!r} has no variables yet: build it first, with an Input, model.build(), or a first call"
        )
    optimizer = getattr(model, "optimizer", None)
    # An optimizer has no variables before it is built: Keras's own files then drop its state, with a warning alone.
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    variables: dict[str, Any] = {}
    for variable in model.variables:
        # Keras's own files bring a seed generator's state of [7, 30] back as [7, 0], and dropout draws other numbers.
        _add(variables, (SEEDS if variable.name == "seed_generator_state" else "model/") + variable.path, variable)
    for variable in optimizer.variables if optimizer is not None else ():
        _add(variables, f"optimizer/{variable.name}", variable)  # its path depends on what has built the optimizer
    for attribute, own_optimizer in own_optimizers(model).items():
        for variable in own_optimizer.variables if own_optimizer.built else ():
            _add(variables, f"{OWN_OPTIMIZERS}{attribute}/{variable.name}", variable)
    for variable in model.metrics_variables:
        _add(variables, METRICS + variable.path, variable)
    return variables


def value(variable: Any, spare: Array | None = None) -> Array:
    """A copy of the variable's value in host memory: in `spare`, if that has its dtype and shape.

    Allocating new memory may take ten times as long as the copy.
    """
    return copied(view(variable), spare)


def view(variable: Any) -> Array:
    """The variable's value in host memory: on a CPU it is the variable's own memory, which training changes.

    Where members hold parts of the variable, all of them call it, and it blocks until they do.
    """
    held = _own_part(variable.value)
    if (arrays := split_arrays(held)) is not None:
        return np.asarray(arrays.joined(held))
    if not hasattr(held, "detach"):
        return np.asarray(held.read_value() if hasattr(held, "read_value") else held)
    try:
        return np.asarray(held.detach())  # PyTorch makes no array of a tensor with a gradient
    except TypeError:  # nor of one on a GPU, or in bfloat16
        return np.asarray(variable.numpy())


def is_split(variable: Any) -> bool:
    """Whether members hold parts of the variable."""
    return split_arrays(variable.value) is not None


def held_value(variable: Any) -> Any:
    """A copy of the variable's value, which `assign` takes: of a variable that members hold in parts, this member's."""
    return variable.value if is_split(variable) else value(variable)  # nothing changes an array of JAX


def retained_value(variable: Any) -> Any:
    """As `held_value`, without a copy where training leaves memory as it is that is referenced."""
    if is_split(variable) or backend_in_use() != TENSORFLOW:
        return held_value(variable)
    return view(variable)


def put_back(variable: Any, retained: Any) -> None:
    """Assign a `retained_value` to its variable, unless it has that value since."""
    if not (isinstance(retained, np.ndarray) and retained.nbytes and _is_memory_of(variable, retained)):
        variable.assign(retained)


def _is_memory_of(variable: Any, content: Array) -> bool:
    return not is_split(variable) and view(variable).ctypes.data == content.ctypes.data


def part_of(
    variables: Mapping[str, Any], spare: Mapping[str, Array], rank: int
) -> tuple[dict[str, Array], list[TensorSlice]]:
    """Copies of what the member `rank` writes of the variables, in `spare` if they fit, and which slices are in it.

    Its own slices of those that members hold in parts; rank 0 writes the others. No member copies one that is split.
    """
    member_slices = MemberSlices(rank, spare)
    for name, variable in variables.items():
        arrays = split_arrays(variable.value)
        if arrays is not None:
            pieces = arrays.own_slices(variable.value)
            member_slices.add(name, variable.shape, arrays.dtype_name(variable.value), pieces)
        elif not rank:
            member_slices.arrays[name] = value(variable, spare.get(name))
    return member_slices.arrays, member_slices.slices


def member_variables(model: Any) -> dict[str, Any]:
    """The variables of a built model that differ between members, by name: statistics of its layers, and metrics.

    Statistics are what a layer makes as not trainable, such as the moving averages of batch normalization; what a user
    freezes is equal on all members. Empty where they take more than `MEMBER_BYTES`.
    """
    layers = model._flatten_layers()
    statistics = {id(variable) for layer in layers for variable in layer._non_trainable_variables}
    own_variables = {
        name: variable
        for name, variable in named(model).items()
        if name.startswith(METRICS) or (id(variable) in statistics and not name.startswith(SEEDS))
    }
    nbytes = sum(view(variable).nbytes for variable in own_variables.values())
    return own_variables if nbytes <= MEMBER_BYTES else {}


def with_members(arrays: Mapping[str, Array], members: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The state of a model with those of `members`, by rank: what `member_variables` has named, with their values.

    A gang of another size continues with the chief's statistics, and the means of the metrics.
    """
    state = dict(arrays)
    for rank, values in enumerate(members):
        state |= {f"{MEMBER}{rank}/{name}": value for name, value in values.items()}
    for name, value in members[0].items() if members else ():
        if name.startswith(METRICS) and value.dtype.kind == "f":
            state[name] = np.asarray(np.mean([values[name] for values in members], axis=0, dtype=value.dtype))
        else:
            state[name] = value
    return state


def _own_part(held: Any) -> Any:
    """This member's part of a variable under a strategy of several members; anything else as it is.

    TensorFlow adds up some variables over the members when they are read, such as those of metrics: all members must
    read them then, and one alone saves.
    """
    strategy = getattr(held, "distribute_strategy", None)
    if strategy is None or not getattr(strategy.extended, "_in_multi_worker_mode", lambda: False)():
        return held
    return held.values[0]


def assign(variables: Mapping[str, Any], files: TensorFiles, step: int, rank: int, size: int = 1) -> None:
    """Set the variables to the values in `files`; a rank other than theirs keeps the seeds of its generators.

    Where the files have the own variables of `size` members, this one gets its own.

    Raises UserError, and changes nothing, if the files are of another model. Metrics that differ keep their values,
    because the first batch builds them; so do a model's own optimizers that only one side has built.
    """
    stored = files.document["variables"]
    built = _group_names(variables)
    saved = _group_names(stored)
    targets = _but_metrics({name: variable for name, variable in variables.items() if _group(name) in saved | {""}})
    sources = _matched(
        targets, _but_metrics({n: form for n, form in stored.items() if _group(n) in built | {""}}), step
    )
    for name, source in sources.items():
        if (parts := _read_parts(files, source, variables[name])) is not None:
            variables[name].assign(parts)
            continue
        content = _read(files, source, rank, size)
        if name.startswith(SEEDS) and rank != source_rank(files.document):
            content[0] = value(variables[name])[0]
        set_value(variables[name], content)
    assign_metrics(variables, files, rank, size)


def set_value(variable: Any, content: Array) -> None:
    """Assign what `stored` returns to a variable of Keras."""
    if backend_in_use() != TENSORFLOW:
        variable.assign(content)
        return
    from sparktrain.training.frameworks.tensorflow import variable_memory

    variable_memory.assign(variable, content)


def assign_metrics(variables: Mapping[str, Any], files: TensorFiles, rank: int, size: int) -> bool:
    """Set the metrics' variables to the values in `files`; False, without a change, if the files have other metrics."""
    metrics = {name: variable for name, variable in variables.items() if name.startswith(METRICS)}
    stored = {name: form for name, form in files.document["variables"].items() if name.startswith(METRICS)}
    try:
        sources = _matched(metrics, stored, 0)
    except UserError:
        return False
    for name, source in sources.items():
        metrics[name].assign(_read(files, source, rank, size))
    return True


def _read_parts(files: TensorFiles, name: str, variable: Any) -> Any:
    """The value of a variable that members hold in parts: this one reads its own. None for any other variable."""

    def read(index: Index) -> Array:
        return files.read_slice(name, index)

    arrays = split_arrays(variable.value)
    return arrays and arrays.from_slices(variable.value, read)


def stored(files: TensorFiles, name: str) -> Array:
    """A stored array, for `set_value`."""
    # TensorFlow copies what it assigns. JAX may use the memory of the file itself, for as long as the array lives.
    return files.view(name) if backend_in_use() == TENSORFLOW else files.read(name)


def _read(files: TensorFiles, name: str, rank: int, size: int) -> Array:
    own_name = f"{MEMBER}{rank}/{name}"
    has_own = files.document.get("members") == size and own_name in files
    stored_name = own_name if has_own else name
    return stored(files, stored_name)


# ---- random generators of the process


def global_generator() -> Any:
    """Keras's global seed generator; None before its first use."""
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    return global_state.get_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR)


def global_seed() -> Array | None:
    """The state of Keras's global seed generator; None before its first use."""
    generator = global_generator()
    return None if generator is None else value(generator.state)


def assign_global_seed(state: Array, *, keep_seed: bool) -> None:
    """Set Keras's global seed generator to `state`; with `keep_seed` to its counter alone."""
    from keras.src.random import seed_generator

    generator = seed_generator.global_seed_generator()
    if keep_seed:
        state[0] = value(generator.state)[0]
    generator.state.assign(state)


# ---- which variable is which


def spec(variable: Any) -> str:
    """Dtype and shape as text, for comparisons and messages."""
    return f"{variable.dtype} {tuple(variable.shape)}"


def _add(table: dict[str, Any], name: str, value: Any) -> None:
    count = 1
    unique = name
    while unique in table:
        count += 1
        unique = f"{name}#{count}"
    table[unique] = value


def _but_metrics(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: variable for name, variable in variables.items() if not name.startswith(METRICS)}


def _group(name: str) -> str:
    """The attribute of the model's own optimizer that has the variable `name`; empty for other variables."""
    return name.split("/")[1] if name.startswith(OWN_OPTIMIZERS) else ""


def _group_names(names: Iterable[str]) -> set[str]:
    return set(map(_group, names)) - {""}


def _matched(variables: Mapping[str, Any], stored: Mapping[str, str], step: int) -> dict[str, str]:
    """The stored name for each variable's name. `stored` has the specs by name, in order."""
    specs = {name: spec(variable) for name, variable in variables.items()}
    if specs == stored:
        return {name: name for name in specs}
    if [(_kind(name), form) for name, form in specs.items()] == [(_kind(name), form) for name, form in stored.items()]:
        return dict(zip(specs, stored, strict=True))
    raise UserError(
        f"the checkpoint of step {step} is of another model than the function has built: {_difference(specs, stored)}; "
        "build the same model in each generation, or start a new run"
    )


def _kind(name: str) -> str:
    """The last two parts of a name without Keras's counters, which depend on the models that were built before."""
    return "/".join(_COUNTER.sub("", name).split("/")[-2:])


def _difference(specs: Mapping[str, str], stored: Mapping[str, str]) -> str:
    model_names = {name: name for name in specs}
    stored_names = {name: name for name in stored}
    without = _without_counters(specs), _without_counters(stored)
    if len(without[0].keys() & without[1].keys()) > len(model_names.keys() & stored_names.keys()):
        model_names, stored_names = without
    lacking = [f"{stored_names[name]} {stored[stored_names[name]]}" for name in stored_names if name not in model_names]
    surplus = [f"{model_names[name]} {specs[model_names[name]]}" for name in model_names if name not in stored_names]
    pairs = [(stored[stored_names[name]], model_names[name]) for name in model_names if name in stored_names]
    mismatches = [f"{name} {specs[name]}, in the checkpoint {form}" for form, name in pairs if specs[name] != form]
    kinds = {"the model lacks": lacking, "the checkpoint lacks": surplus, "of another shape or type:": mismatches}
    parts = [f"{kind} {_shown(names)}" for kind, names in kinds.items() if names]
    return "; ".join(parts) or f"the same variables come in another order, {_shown(specs)}"


def _without_counters(names: Iterable[str]) -> dict[str, str]:
    """The names by their text without Keras's counters, numbered where that is equal."""
    bare_names: dict[str, str] = {}
    for name in names:
        _add(bare_names, _COUNTER.sub("", name), name)
    return bare_names


def _shown(names: Iterable[str]) -> str:
    names = list(names)
    tail = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + tail
