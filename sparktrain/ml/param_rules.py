"""The rules of the stages' params: converters that Spark calls when a param is set."""

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.ml.param import TypeConverters

from sparktrain.config.backends import Backend
from sparktrain.config.call_option import options_in
from sparktrain.config.option_catalog import LaunchKeywords, RunKeywords
from sparktrain.config.option_rules import place
from sparktrain.config.param_values import check_name, described, did_you_mean, plain, shown
from sparktrain.config.sweep_spec import run_name
from sparktrain.errors import SpecError

PREFIX_LENGTH = 96
"""The longest prefix of a run's name: an ending of 13 characters follows it."""


def integer(name: str, least: int) -> Callable[[Any], int]:
    """Integers from `least`."""

    def convert(value: Any) -> int:
        if isinstance(value, bool):
            raise TypeError(f"{name} is {described(value)}; pass an int")
        number = TypeConverters.toInt(value)
        if number < least:
            raise SpecError(f"{name} ({number}) must be at least {least}")
        return number

    return convert


def column(value: Any) -> str:
    """The name of a column."""
    name = TypeConverters.toString(value)
    if not name.strip():
        raise SpecError(f"the name of a column ({name!r}) is empty: pass the name, or leave the param out")
    return name


def columns(value: Any) -> list[str]:
    """Names of columns, each once."""
    names = TypeConverters.toListString(value)
    if not names:
        raise SpecError("inputCols is an empty list: name at least one column")
    if twice := [name for index, name in enumerate(names) if name in names[:index]]:
        raise SpecError(f"inputCols names {twice[0]!r} twice: name it once")
    return [column(name) for name in names]


def fraction(value: Any) -> float:
    """A part of the rows, from 0 to below 1."""
    part = TypeConverters.toFloat(value)
    if not 0 <= part < 1:
        raise SpecError(f"validationSplit ({part:g}) must be from 0 to below 1: 0.1 validates on a tenth of the rows")
    return part


def rate(value: Any) -> float:
    """A learning rate."""
    number = TypeConverters.toFloat(value)
    if not 0 < number < float("inf"):
        raise SpecError(f"learningRate ({number:g}) must be above 0 and finite")
    return number


def backend(value: Any) -> str:
    """What connects members."""
    name = TypeConverters.toString(value)
    choices = ["auto", *(choice.value for choice in Backend)]
    if name not in choices:
        raise SpecError(f"backend ({shown(name)}) must be one of {', '.join(choices)}{did_you_mean(name, choices)}")
    return name


def directory(value: Any) -> str:
    """A path or a URL."""
    return place(value, "dir")


def prefix(value: Any) -> str:
    """The start of a run's name."""
    name = run_name(TypeConverters.toString(value), "namePrefix")
    if len(name) > PREFIX_LENGTH:
        raise SpecError(f"namePrefix has {len(name)} characters, {PREFIX_LENGTH} are the most: shorten it")
    return name


def hyperparameters(value: Any) -> dict[str, Any]:
    """Arguments of the user's function by name, as plain data."""
    params = _dict(value, "modelParams", "{'units': 64}")
    return {check_name(name, "modelParams"): plain(param, f"modelParams[{name!r}]") for name, param in params.items()}


def options(stage_options: Mapping[str, str]) -> Callable[[Any], dict[str, Any]]:
    """Further options of `sparktrain.run`; `stage_options` are params of their own, each with its name."""

    names = [name for name in {**options_in(RunKeywords), **options_in(LaunchKeywords)} if name not in stage_options]

    def convert(value: Any) -> dict[str, Any]:
        run_options = _dict(value, "runOptions", "{'max_retries': 1}")
        for name in run_options:
            if name in stage_options:
                raise SpecError(f"runOptions has {name!r}, which the stage sets itself: {stage_options[name]}")
            if name not in names:
                raise SpecError(
                    f"runOptions has {name!r}, which is no option of sparktrain.run{did_you_mean(name, names) or ';'} "
                    f"the options are {', '.join(names)}"
                )
        return {str(name): plain(option, f"runOptions[{name!r}]") for name, option in run_options.items()}

    return convert


def _dict(value: Any, name: str, example: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {described(value)}, a dict is expected: write {example}")
    return value
