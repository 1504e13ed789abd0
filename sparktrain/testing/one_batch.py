"""Keras's `fit` and `evaluate` limited to one batch of one epoch. Imports Keras."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras

from sparktrain.training.frameworks.keras.keras_patches import replace
from sparktrain.training.frameworks.tensorflow.strategies.workarounds import problems_in_step

_LIMITS = {"fit": {"steps_per_epoch": 1}, "evaluate": {"steps": 1}}


class OneBatch:
    """Limits the models of this process, and keeps those that were trained."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, str], Any] = {}
        """Models by their id and by the method that was called."""

    @property
    def fits(self) -> int:
        """How many models `fit` was called on."""
        return sum(method == "fit" for _, method in self._used)

    def limit(self) -> None:
        """Limit all models from now on; `keras_patches.put_back` undoes it."""
        for method in _LIMITS:
            replace(keras.Model, method, functools.partial(self._limited, method))

    def unsupported(self) -> list[str]:
        """The features of these models that Keras lacks under a strategy that connects several members."""
        problems: Iterator[str] = (
            f"model.{method}(): {problem}"
            for (_, method), model in self._used.items()
            for problem in problems_in_step(model, method, multi_worker=True)
        )
        return list(dict.fromkeys(problems))

    def _limited(self, method: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def limited(model: Any, *args: Any, **kwargs: Any) -> Any:
            self._used[id(model), method] = model
            try:
                bound = signature.bind(model, *args, **kwargs)
            except TypeError:
                return plain(model, *args, **kwargs)  # raises the error of the wrong call
            bound.arguments.update(_LIMITS[method])
            if method == "fit":
                bound.arguments["epochs"] = bound.arguments.get("initial_epoch", 0) + 1
                if bound.arguments.get("validation_data") is not None:
                    bound.arguments["validation_steps"] = 1
            return plain(*bound.args, **bound.kwargs)

        return limited
