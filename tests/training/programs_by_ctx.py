"""Trains the programs of `programs.py` as a function of a user does, on the backend of Keras that the run has."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sparktrain.training import process_setup
from tests.training import programs


def train(folder: str, names: list[str], ctx: Any) -> dict[str, float]:
    """Write the weights of each program, or its error, to `folder`."""
    ends: dict[str, Any] = {}
    for name in names:
        process_setup.seed(7)
        try:
            model = programs.PROGRAMS[name](ctx)
            ends[name] = np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()
        except Exception as error:  # of Keras, its backend and this package
            ends[name] = f"{type(error).__name__}: {error}"
    Path(folder, f"{ctx.size}-rank-{ctx.rank}.json").write_text(json.dumps(ends))
    return {"torch": float(keras.backend.backend() == "torch")}
