"""Finds members that train another model: by their programs before the first step, by their weights after it."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparktrain.errors import OutOfStepError, SpecError
from sparktrain.training.collectives.ring import TENSORFLOW, Ring
from sparktrain.training.collectives.weight_digests import difference, digest
from sparktrain.training.frameworks.keras import model_state
from sparktrain.training.frameworks.keras.distributed_apply import own_optimizers, reduce_outside_scale
from sparktrain.training.frameworks.keras.spread_model import is_spread

_SHOWN = 3


def check_same_program(ring: Ring, model: Any, *, steps: int | None = None) -> None:
    """Raise OutOfStepError, on all members, when their models or optimizers differ.

    It compares shapes, types and names of all variables, the optimizer with its configuration, and `steps`, a member's
    steps in an epoch; it ignores numbers that Keras appends to names. All members call it once the model is built and
    compiled, before the first step; it blocks until they do. It moves the reduction of an optimizer to the loss scale
    that `compile()` has put around it. Raises SpecError for a model of TensorFlow with jit_compile on, and RingError.
    """
    if ring.size > 1 and ring.framework == TENSORFLOW and getattr(model, "jit_compile", False):
        raise SpecError(
            "the model is compiled with jit_compile on, and XLA cannot compile the operations of a ring; "
            "pass jit_compile=False to compile()"
        )
    if getattr(model, "optimizer", None) is not None:
        reduce_outside_scale(model.optimizer)
    facts = _facts(model, steps)
    text = json.dumps(facts).encode()
    # A digest first: the texts themselves travel only where they differ.
    content = np.frombuffer(text, np.uint8)
    digests = ring.allgather_array(np.array([digest(content)], "int64"), name="program")
    if len(set(digests.tolist())) == 1:
        return
    lengths = ring.allgather_array(np.array([len(text)], "int64"), name="program-lengths")
    texts = ring.allgather_array(content, name="program-texts")
    parts = np.split(texts, np.cumsum(lengths)[:-1])
    programs = [dict(json.loads(part.tobytes())) for part in parts]
    raise OutOfStepError("\n".join(["the members of the gang do not run the same program:", *_differences(programs)]))


def check_equal(ring: Ring, model: Any) -> None:
    """Raise OutOfStepError, on all members, when their trainable weights or their optimizers' variables differ.

    It compares every bit. All members call it after the same step; it blocks until they do, and reads all weights once.
    Members with `local_steps` call it right after an average, and have optimizers of their own. What XLA keeps in step
    is not read. Raises RingError too.
    """
    if ring.size == 1 or is_spread():
        return
    variables = list(model.trainable_variables)
    if ring.local_steps is None:
        optimizers = (getattr(model, "optimizer", None), *own_optimizers(model).values())
        variables += [slot for optimizer in optimizers if optimizer is not None for slot in optimizer.variables]
    # An optimizer that reduces nothing raises no error: with Horovod's own, members of Keras 3 train apart in silence.
    if unequal := difference(ring, [(variable.path, model_state.view(variable)) for variable in variables]):
        raise OutOfStepError(
            f"{unequal}: the members do not train one model. Make the optimizer with ctx.distribute(...) after the "
            "model was loaded, start from equal weights (ctx.keras_callbacks() ensures that), and change "
            "weights and learning rate on all ranks alike"
        )


def _facts(model: Any, steps: int | None) -> list[tuple[str, str]]:
    """What must be equal, with names, in the order in which messages list differences."""
    facts = [("steps", "not known" if steps is None else str(steps)), ("variables", str(len(model.variables)))]
    for number, variable in enumerate(model.variables):
        kind = "trainable" if variable.trainable else "not trainable"
        facts.append((f"variable {number}", f"{_stem(variable.path)} {tuple(variable.shape)} {variable.dtype} {kind}"))
    optimizer = getattr(model, "optimizer", None)
    facts.append(("optimizer", type(optimizer).__name__))
    if optimizer is not None:
        # A schedule or a function has no form in JSON: its type stands for it.
        config = json.loads(json.dumps(optimizer.get_config(), default=lambda value: type(value).__name__))
        facts += [(f"optimizer's {key}", _stem(json.dumps(config[key], sort_keys=True))) for key in sorted(config)]
    return facts


def _differences(programs: Sequence[dict[str, str]]) -> list[str]:
    differences = []
    for key in dict.fromkeys(key for facts in programs for key in facts):
        values = [facts.get(key, "nothing") for facts in programs]
        usual, _ = Counter(values).most_common(1)[0]
        for rank, value in enumerate(values):
            if value != usual:
                differences.append(f"  rank {rank}: {key} is {value}, on the others {usual}")
    tail = [f"  and {len(differences) - _SHOWN} more differences"] if len(differences) > _SHOWN else []
    return [*differences[:_SHOWN], *tail, "  build and compile the same model on every rank, from the same parameters"]


def _stem(text: str) -> str:
    """`text` without the numbers that Keras appends to the names of layers of one class."""
    return re.sub(r'_\d+(?=[/"]|$)', "", text)
