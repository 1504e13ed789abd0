"""What is put in the place of attributes of Keras, once, and put back."""

import functools
from collections.abc import Callable
from typing import Any

from sparktrain.training.frameworks.keras.keras_patches import put_back, replace


class Base:
    def fit(self) -> str:
        return "plain"


class Model(Base):
    def compile(self) -> str:
        return "compiled"


def louder(method: Callable[..., str]) -> Callable[..., str]:
    return lambda self: method(self) + "!"


def twice(times: int, method: Callable[..., str]) -> Callable[..., str]:
    return lambda self: method(self) * times


def test_a_method_is_replaced_once_by_each_function() -> None:
    with put_back():
        for _ in range(2):
            replace(Model, "compile", louder)
            replace(Model, "compile", functools.partial(twice, 2))

        assert Model().compile() == "compiled!compiled!"
    assert Model().compile() == "compiled"


def test_an_inherited_method_is_inherited_again() -> None:
    with put_back():
        replace(Model, "fit", louder)
        assert (Model().fit(), Base().fit()) == ("plain!", "plain")
    assert "fit" not in vars(Model)


def test_is_put_back_in_reverse_order_when_the_context_is_left_by_an_error() -> None:
    before: Any = vars(Model)["compile"]
    replaced = []
    try:
        with put_back():
            replace(Model, "compile", louder)
            with put_back():
                replace(Model, "compile", functools.partial(twice, 2))
                replaced.append(Model().compile())
            replaced.append(Model().compile())
            raise ValueError
    except ValueError:
        pass
    assert replaced == ["compiled!compiled!", "compiled!"]
    assert vars(Model)["compile"] is before
