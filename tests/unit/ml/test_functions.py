"""Functions of an estimator: what is refused, what they are called with, and how they are stored."""

import threading
from collections.abc import Callable
from platform import python_version
from typing import Any

import pytest

import sparktrain as st
from sparktrain.ml import KerasEstimator, KerasModel
from sparktrain.ml.stage_files import check_class
from sparktrain.ml.training_function import FitColumns
from sparktrain.ml.user_function import UserFunction, restored, stored, user_function
from tests.spark import keras_stages

COLUMNS = FitColumns(features=("a", "b"), label="label", weight=None, stack=True, validated=False)
SETTINGS = {
    "batch_size": 8,
    "epochs": 2,
    "shuffle": True,
    **dict.fromkeys(("optimizer", "learning_rate", "loss", "metrics")),
}


def refused(match: str, *given: Any, model_params: dict[str, Any] | None = None) -> None:
    with pytest.raises((st.FunctionError, st.SpecError), match=match):
        user_function(*given).check(model_params or {}, COLUMNS)


def test_exactly_one_function_is_given() -> None:
    refused("one of model= .* and train_fn= .*: pass one", None, None)
    refused("leave one out", keras_stages.build, keras_stages.build)
    refused("model is a int, a function is expected", 3, None)
    refused("train_fn is a type, a function is expected", None, dict)


def test_hyperparameters_must_fit_the_function() -> None:
    refused("no parameter 'unit'; did you mean 'units'", keras_stages.build, None, model_params={"unit": 3})
    refused("parameter 'count' has no value", keras_stages.classes, None)
    refused("has no parameter 'ctx', by which it gets its data", None, keras_stages.build)
    refused(
        "modelParams has 'epochs', which .* gets from the params",
        None,
        lambda ctx, epochs: None,
        model_params={"epochs": 3},
    )
    refused("parameter 'units' has no value", None, lambda ctx, units: None)


def test_a_training_function_gets_hyperparameters_and_the_settings_that_it_names() -> None:
    def train(ctx: Any, units: int, epochs: int, feature_columns: list[str], **more: Any) -> tuple[Any, ...]:
        return ctx, units, epochs, feature_columns, more

    given = user_function(None, train)
    given.check({"units": 3, "rate": 0.5}, COLUMNS)
    found = given.for_run(COLUMNS)(ctx="ctx", model_params={"units": 3, "rate": 0.5}, **SETTINGS)
    assert found == ("ctx", 3, 2, ["a", "b"], {"rate": 0.5})


def test_a_function_of_a_module_is_stored_by_name() -> None:
    extra, files = stored(UserFunction(keras_stages.build, True))
    assert (extra["function"], files) == ("tests.spark.keras_stages:build", {})
    found = restored({**extra, "python": "2.7.1"}, files)
    assert (found.function, found.builds) == (keras_stages.build, True)
    with pytest.raises(
        st.FunctionError, match=r"build\(\) .* cannot be loaded: No module named 'gone'; put its module"
    ):
        restored({**extra, "function": "gone:build", "python": "3"}, {})


def local(units: int) -> Callable[[], int]:
    def inner() -> int:
        return units

    return inner


def test_other_functions_are_stored_as_pickles_of_one_python() -> None:
    extra, files = stored(UserFunction(local(7), False))
    assert extra["function"] is None
    found = restored({**extra, "python": python_version()}, files)
    assert (found.function(), found.builds) == (7, False)
    with pytest.raises(st.FunctionError, match=r"saved as bytecode of Python 3\.2\.0, and this is Python"):
        restored({**extra, "python": "3.2.0"}, files)


def test_a_function_that_cannot_be_pickled_is_refused_before_spark_writes() -> None:
    lock = threading.Lock()
    with pytest.raises(st.FunctionError, match="make locks within the function"):
        KerasEstimator(lambda: lock).write()


def test_classes_that_no_other_program_could_load_are_refused() -> None:
    class Mine(KerasModel):
        pass

    with pytest.raises(st.SpecError, match=r"Mine is defined within a function, .* move the class to a module"):
        check_class(Mine("x.keras"))
    Mine.__qualname__, Mine.__module__ = "Mine", "__main__"
    with pytest.raises(st.SpecError, match="defined in this script or notebook"):
        check_class(Mine("x.keras"))
    check_class(KerasModel("x.keras"))
    assert KerasModel.__module__ == KerasEstimator.__module__ == "sparktrain.ml"
