"""Params of Spark ML that a class declares by a sentence and a converter: names, setters and getters follow."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.ml.param import Param, Params

_SPELLED = {"ps": "PS", "tfrecord": "TFRecord"}
"""Words of a param that its setter spells in another way."""


def stage_param(doc: str, converter: Callable[[Any], Any]) -> Any:
    """A param for the body of a `StageParams`, which has the name of its attribute; `converter` checks its values."""
    return Param(Params._dummy(), "", doc, typeConverter=converter)


class StageParams(Params):
    """The base of classes with params: each param has `setX` and `getX`, as in Spark's own stages."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the setters and getters

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # All attributes, not only those of this class: Spark's mixins, such as HasLabelCol, have getters alone.
        for name in dir(cls):
            param = getattr(cls, name, None)  # an abstract class has no __abstractmethods__ yet
            if isinstance(param, Param):
                param.name = param.name or name
                for accessor in (_setter(param), _getter(param)):
                    if not hasattr(cls, accessor.__name__):
                        setattr(cls, accessor.__name__, accessor)


def _setter(param: Any) -> Any:
    def set_value(self: Any, value: Any) -> Any:
        return self._set(**{param.name: value})

    set_value.__name__ = f"set{_ending(param.name)}"
    set_value.__doc__ = f"Set {param.name}: {param.doc}."
    return set_value


def _getter(param: Any) -> Any:
    def get_value(self: Any) -> Any:
        return self.getOrDefault(param.name)

    get_value.__name__ = f"get{_ending(param.name)}"
    get_value.__doc__ = f"The value of {param.name}: {param.doc}."
    return get_value


def _ending(name: str) -> str:
    return "".join(_SPELLED.get(word, word[0].upper() + word[1:]) for word in name.split("_"))
