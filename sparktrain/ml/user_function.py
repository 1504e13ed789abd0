"""The function that the user gives an estimator, checked, and the training function for `run` around it."""

import inspect
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparktrain.config.param_values import CONTEXT_NAME
from sparktrain.errors import FunctionError, SpecError
from sparktrain.ml.training_function import SETTINGS, FitColumns
from sparktrain.training.script_loading import referred
from sparktrain.usercode.closure import describe
from sparktrain.usercode.imports import plain_function_of
from sparktrain.usercode.serialize import pickled, unpickled
from sparktrain.usercode.target import check_call

FILE = "function"


@dataclass(frozen=True)
class UserFunction:
    """The user's function: one that builds a model, or one that trains it."""

    function: Callable[..., Any]
    builds: bool

    def check(self, model_params: Mapping[str, Any], columns: FitColumns) -> None:
        """Raise FunctionError or SpecError when it cannot be called with these hyperparameters."""
        if self.builds:
            check_call(self.function, [model_params], "modelParams")
            return
        if CONTEXT_NAME not in _parameters(self.function):
            raise FunctionError(
                f"{describe(self.function)} has no parameter 'ctx', by which it gets its data: write def "
                "train(ctx, ...) and read ctx.dataset('train')"
            )
        offered = self._offered(columns)
        if clash := [name for name in model_params if name in offered]:
            raise SpecError(
                f"modelParams has {clash[0]!r}, which {describe(self.function)} gets from the params of the estimator: "
                "set it there, or rename the parameter"
            )
        check_call(self.function, [{**dict.fromkeys(offered), **model_params}], "modelParams")

    def for_run(self, columns: FitColumns) -> Callable[..., Any]:
        """The training function for `run` and `launch`; its parameters are those of `fit_built`."""
        function = self.function
        builds = self.builds
        offered = self._offered(columns)

        def train(ctx: Any, model_params: dict[str, Any], **settings: Any) -> Any:
            if not builds:
                arguments = {**settings, **columns.of_batch()}
                return function(ctx=ctx, **{name: arguments[name] for name in offered}, **model_params)
            from sparktrain.ml.training_function import fit_built

            return fit_built(ctx, function(**model_params), columns, **settings)

        train.__module__ = getattr(plain_function_of(function), "__module__", "__main__")  # its imports are the user's
        return train

    def _offered(self, columns: FitColumns) -> tuple[str, ...]:
        """The settings of the estimator that a function of the user has parameters for, by the names of `to_tf`."""
        parameters = _parameters(self.function)
        return tuple(name for name in (*SETTINGS, *columns.of_batch()) if name in parameters)


def user_function(model: object, train_fn: object) -> UserFunction:
    """The function of an estimator. Raises FunctionError unless exactly one is given."""
    if (model is None) == (train_fn is None):
        raise FunctionError(
            "KerasEstimator takes one of model= (a function that returns a Keras model) and train_fn= (a function that "
            f"trains one): {'pass one' if model is None else 'leave one out'}"
        )
    value: Any = train_fn if model is None else model
    if not callable(value) or isinstance(value, type) or _is_model(value):
        name = "train_fn" if model is None else "model"
        raise FunctionError(
            f"{name} is a {type(value).__name__}, a function is expected: write def build(units=8): ... that returns a "
            f"keras.Model, and pass {name}=build"
        )
    return UserFunction(value, model is not None)


def _is_model(value: object) -> bool:
    """Whether it is a Keras model, without importing Keras."""
    return any(base.__module__.startswith("keras.") for base in type(value).__mro__)


def _parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def stored(function: UserFunction) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Metadata and files of a function. Raises FunctionError when it cannot be pickled."""
    reference = _reference(function.function)
    extra = {"builds": function.builds, "function": reference, "described": describe(function.function)}
    return extra, {} if reference is not None else {FILE: pickled(function.function)}


def restored(extra: Mapping[str, Any], files: Mapping[str, bytes]) -> UserFunction:
    """The function of these metadata and files. Runs code of the user: that of its module, or of its pickle.

    Raises FunctionError when its module is missing, or its pickle is of another version of Python.
    """
    reference = extra["function"]
    described = extra["described"]
    if reference is None:
        _check_python(extra["python"], described)
    try:
        function = referred(reference) if reference is not None else unpickled(files[FILE])
    except (ImportError, AttributeError) as error:
        raise FunctionError(
            f"the estimator's function {described} cannot be loaded: {error}; put its module on sys.path, as where it "
            "was saved"
        ) from error
    return UserFunction(function, extra["builds"])


def _check_python(saved: str, described: str) -> None:
    """A pickle of a function has bytecode, which belongs to one minor version of Python."""
    live = platform.python_version()
    if saved.split(".")[:2] != live.split(".")[:2]:
        raise FunctionError(
            f"the estimator's function {described} was saved as bytecode of Python {saved}, and this is Python {live}: "
            "load it with that version, or save an estimator with a function of a module that can be imported"
        )


def _reference(function: Any) -> str | None:
    """`module:name`, when an import finds this very function; None for one of a script, notebook or function."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if module in (None, "__main__", "__mp_main__") or "<" in name:
        return None
    reference = f"{module}:{name}"
    try:
        return reference if referred(reference) is function else None
    except (ImportError, AttributeError):
        return None
