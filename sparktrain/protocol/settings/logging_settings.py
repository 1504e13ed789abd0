"""How a script has set up `logging`: levels, and what its handlers print to the console."""

import logging
import sys
from functools import partial
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported

_NEVER = ("sparktrain", "py4j", "pyspark")
_BY_MLFLOW = frozenset(("alembic", "huey", "sqlalchemy"))
"""Its import sets their loggers up, whether or not they are imported."""
_OF_TESTS = "_pytest."
_DISABLED = "disabled below"
_CAPTURED = "captured warnings"
_LEVELS = "_levels of libraries"
ROOT = "root"
_PLAIN_FORMATS = (None, "%(message)s", logging.BASIC_FORMAT)
_ABSL = "%(levelname).1s%(asctime)s.%(msecs)03d %(process)d %(filename)s:%(lineno)d] %(message)s"
"""About what the handler of absl prints, which has no such text."""


def changed(module: Any) -> dict[str, Any]:
    """What differs from a fresh process, by the names of loggers: levels, handlers and the like.

    Of loggers of libraries the levels alone, which they may have set themselves.
    """
    never = _BY_MLFLOW.union(_NEVER) if "mlflow" in sys.modules else _NEVER
    loggers = {
        name: logger
        for name, logger in list(module.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] not in never
    }
    users_loggers = {name: logger for name, logger in loggers.items() if not _is_library(name)}
    levels = {name: logger.level for name, logger in loggers.items() if logger.level and name not in users_loggers}
    of_program = {name: _state(name, logger) for name, logger in users_loggers.items()}
    values = {
        ROOT: _state(ROOT, module.root),
        **of_program,
        _DISABLED: module.root.manager.disable,
        _CAPTURED: module._warnings_showwarning is not None,
        _LEVELS: levels,
    }
    return {name: value for name, value in values.items() if value}


def _is_library(name: str) -> bool:
    """Whether an installed library logs by this name: it sets its loggers up itself."""
    top = name.partition(".")[0]
    place = str(getattr(sys.modules.get(top), "__file__", None) or "")
    return top in sys.stdlib_module_names or "site-packages" in place or "dist-packages" in place


def _state(name: str, logger: logging.Logger) -> dict[str, Any]:
    fresh = {"level": logging.WARNING if name == ROOT else logging.NOTSET, "propagate": True, "disabled": False}
    state: dict[str, Any] = {key: getattr(logger, key) for key in fresh if getattr(logger, key) != fresh[key]}
    handlers = [handler for handler in logger.handlers if not type(handler).__module__.startswith(_OF_TESTS)]
    # A file of the driver is none of the trial's: its lines go to the log of the trial, once.
    printed = [_printed(handler) for handler in [*filter(_is_console, handlers)] or handlers[:1]]
    # The shell of a notebook may have given the root a handler that prints as Python itself does.
    is_plain = name == ROOT and not state and all(line["format"] in _PLAIN_FORMATS for line in printed)
    return state if is_plain else state | ({"handlers": printed} if printed else {})


def _is_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)


def _printed(handler: logging.Handler) -> dict[str, Any]:
    formatter = handler.formatter
    style = getattr(formatter, "_style", None)
    marks: dict[type, str] = {logging.StrFormatStyle: "{", logging.StringTemplateStyle: "$"}
    text = _ABSL if type(handler).__module__.startswith("absl.") else getattr(formatter, "_fmt", None)
    return {
        "stdout": getattr(handler, "stream", None) in (sys.stdout, sys.__stdout__),
        "level": handler.level,
        "format": text if isinstance(text, str) else None,
        "dates": "%m%d %H:%M:%S" if text is _ABSL else getattr(formatter, "datefmt", None),
        "style": marks.get(type(style), "%"),
    }


def apply(module: Any, name: str, value: Any) -> None:
    """Set up one logger like in the script. A second call changes nothing."""
    if name == _DISABLED:
        module.disable(value)
    elif name == _CAPTURED:
        module.captureWarnings(value)
    elif name == _LEVELS:
        for library, level in value.items():  # the import of a library may set it again
            patch_when_imported(library.partition(".")[0], partial(_set_level, module.getLogger(library), level))
    else:
        _set_up(module, module.root if name == ROOT else module.getLogger(name), value)


def _set_up(module: Any, logger: logging.Logger, value: dict[str, Any]) -> None:
    logger.propagate = value.get("propagate", logger.propagate)
    logger.disabled = value.get("disabled", logger.disabled)
    if "level" in value:
        logger.setLevel(value["level"])
    if not logger.handlers:
        for printed in value.get("handlers", ()):
            logger.addHandler(_handler(module, printed))


def _set_level(logger: logging.Logger, level: int, _: object) -> None:
    logger.setLevel(level)


def _handler(module: Any, printed: dict[str, Any]) -> logging.Handler:
    handler: logging.Handler = module.StreamHandler(sys.stdout if printed["stdout"] else sys.stderr)
    handler.setLevel(printed["level"])
    handler.setFormatter(module.Formatter(printed["format"], printed["dates"], printed["style"]))
    return handler
