"""A script of the user in place of a training function."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from sparktrain.config.param_values import shown
from sparktrain.config.script_words import FORM, ScriptCall
from sparktrain.errors import SpecError
from sparktrain.training.script_run import run_trial
from sparktrain.usercode.script_target import script_target


def script(
    file: str | PathLike[str],
    *arguments: str,
    form: str = FORM,
    metric_from: str | None = None,
    metric_file: str | None = None,
    keep_files: Sequence[str] = (),
) -> Callable[..., Any]:
    """A script in place of a training function, for `sweep`, `launch` and `run`: unchanged, as Python runs it.

    Each trial runs the file under the name `__main__`, with `arguments`, and its parameters as further ones, spelled as
    the script spells its options: `lr=0.1` as `--lr 0.1`, `batch_size=32` as `--batch-size 32` where the script has
    that. True is `--name`, False `--no-name`, or nothing where the script has `action="store_true"`; None is nothing,
    and a list is several words. The modules beside the script travel with it.

    The metrics of a trial are what the script reports last by `sparktrain.report(...)`. Reads the file, and runs
    nothing of it; call it in the driver.

    Args:
        file: the script.
        *arguments: those that all trials have.
        form: how a parameter becomes words, for other parsers: `"NAME=VALUE"`, or `"--set NAME=VALUE"`.
        metric_from: a regular expression for what the script prints. Its only group is the metric, or named groups are
            metrics of their names; each match is a step.
        metric_file: a file with an object of JSON, metrics by name, that the script writes in its working directory.
        keep_files: patterns such as `"*.pt"` or `"checkpoints"`, for files and folders of the working directory: they
            move to the run directory when the script ends. All others are deleted with the trial.

    Raises:
        FunctionError: the file is not there, no Python, or cannot be imported by its name. SpecError: `form` has no
            `VALUE`, `metric_from` is no regular expression with a group, or `metric_file` or a pattern of `keep_files`
            a path out of that directory.
    """
    path = os.fspath(file)
    _check_form(form)
    if metric_from is not None:
        _check_pattern(metric_from)
    if metric_file is not None:
        _check_below("metric_file", metric_file)
    patterns = (keep_files,) if isinstance(keep_files, str) else tuple(keep_files)
    for pattern in patterns:
        _check_below("keep_files", pattern)
    target = script_target(run_trial, path, is_module=False)
    call = ScriptCall(
        module=target.script,
        path=os.path.abspath(path),
        folder=os.getcwd(),
        arguments=tuple(map(str, arguments)),
        form=form,
        metric_from=metric_from or "",
        metric_file=metric_file or "",
        keep_files=patterns,
    )
    bound = to_builtins(call)
    return replace(target, function=partial(run_trial, bound), bound=bound)


def _check_below(option: str, path: str) -> None:
    if not path or os.path.isabs(path) or ".." in Path(path).parts:
        raise SpecError(
            f"{option} ({shown(path)}) must be below the working directory, which each trial has for itself: "
            "two trials would write the same file; have the script write it there, such as to metrics.json"
        )


def _check_form(form: str) -> None:
    try:
        words = shlex.split(form)
    except ValueError as error:
        raise SpecError(f"form ({shown(form)}) is no words of a command line: {error}; such as {FORM!r}") from None
    if not any("VALUE" in word for word in words):
        raise SpecError(f"form ({shown(form)}) must have VALUE, and NAME where the script needs it, such as {FORM!r}")


def _check_pattern(pattern: str) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SpecError(f"metric_from ({shown(pattern)}) is no regular expression: {error}; correct it") from None
    if compiled.groups != max(1, len(compiled.groupindex)):
        raise SpecError(
            f"metric_from ({shown(pattern)}) has {compiled.groups} groups: put one around the number, such as "
            "'val_loss: ([0-9.]+)', or name each of several, such as '(?P<val_loss>[0-9.]+)'"
        )
