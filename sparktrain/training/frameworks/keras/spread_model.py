"""Models with variables that `keras.distribution` has placed on the devices of all members, whole or in parts."""

from typing import Any

import keras

from sparktrain.training.frameworks.keras import model_state


def is_spread() -> bool:
    """Whether this process makes its variables on devices of several members: then XLA keeps them in step."""
    distribution = keras.distribution.distribution()
    return distribution is not None and getattr(distribution, "num_processes", 1) > 1


def give_parts(model: Any, *prefixes: str) -> None:
    """Take part in the reads of the chief, which copies the variables of `model` with names that start like `prefixes`.

    One variable is in memory at a time. Blocks until all members call it.
    """
    for name, variable in model_state.named(model).items():
        if name.startswith(prefixes or ""):
            model_state.view(variable)
