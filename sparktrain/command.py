"""What the commands of the command line have in common: their session, their output, and their exit codes."""

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

from sparktrain.errors import InfraError, SparktrainError, SpecError, UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sparktrain.driver.progress import Display
    from sparktrain.driver.results import SweepResult
    from sparktrain.driver.signature import Target

EXIT_CODES = {
    0: "at least one trial succeeded, and none was lost",
    1: "an unexpected error, perhaps a bug of sparktrain",
    2: "the call is wrong: an option, a file, the function or the Spark session",
    3: "no trial succeeded",
    4: "trials were lost: the cluster failed more often than they were run again",
    5: "the cluster failed before the end; the same call may succeed later",
    6: "stopped by --timeout before every trial had ended",
    130: "interrupted by Ctrl-C",
}
_CODE_OF_STATUS = {"succeeded": 0, "failed": 3, "lost": 4, "stopped": 6}

_PLAIN_FILES = (".py", ".zip", ".egg", ".whl")
_TENSORFLOW_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_PIPE_WIDTH = 4000
"""Nothing is broken into lines for a file."""


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line, not yet checked."""

    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Options that were given, by their name in `Options`, and `agents`."""
    master: str | None = None
    conf: tuple[str, ...] = ()
    py_files: str | None = None
    as_json: bool = False
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True)
class Call:
    """A checked request, as the driver takes it."""

    target: "Target"
    session: Callable[[], Any]
    """Makes the Spark session; a context manager."""
    display: "Display"


@dataclass(frozen=True)
class Ended:
    """What a command has to show."""

    result: "SweepResult"
    summary: "RenderableType"
    """For people."""


def perform(request: Request, work: Callable[[], Ended]) -> int:
    """Work, show the result, and turn every error into its exit code. Blocks."""
    if not request.debug:
        # Py4J logs a traceback for each socket that Ctrl-C closes under it.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        with _results(request.as_json) as out:
            ended = work()
            _show(ended, out, request.as_json)
            return _CODE_OF_STATUS[str(ended.result.status)]
    except KeyboardInterrupt as error:
        return fail(str(error) or "interrupted", 130)
    except SparktrainError as error:
        if request.debug:
            traceback.print_exc()
        code = 2 if isinstance(error, UserError) else 5 if isinstance(error, InfraError) else 1
        return fail(str(error), code)
    except Exception as error:
        if request.debug:
            traceback.print_exc()
        hint = "" if request.debug else "; --debug shows where"
        return fail(f"unexpected {type(error).__name__}: {error}{hint}", 1)


def prepare(request: Request, app_name: str) -> Call:
    """Check what needs no Spark, and import the function's module. Raises UserError."""
    from sparktrain.driver.display import choose_display
    from sparktrain.driver.session import local_session
    from sparktrain.driver.signature import resolve

    conf = _conf(request.conf)
    py_files = _py_files(request.py_files)
    with _quiet_import():
        target = resolve(request.target)

    @contextmanager
    def session() -> Iterator[Any]:
        with local_session(request.master, conf, app_name) as spark:
            for path in py_files:
                spark.sparkContext.addPyFile(path)
            yield spark

    return Call(target, session, choose_display(quiet=request.quiet))


def fail(message: str, code: int) -> int:
    """Tell `message` on stderr; the exit code."""
    # Perhaps nobody is there to read it; the exit code tells.
    with suppress(OSError):
        print(f"error: {message}", file=sys.stderr, flush=True)
    return code


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Have TensorFlow not tell about this machine when the function's module imports it; in trials it may."""
    given = os.environ.get(_TENSORFLOW_LOG_LEVEL)
    os.environ.setdefault(_TENSORFLOW_LOG_LEVEL, "2")
    try:
        yield
    finally:
        if given is None:
            del os.environ[_TENSORFLOW_LOG_LEVEL]


def _conf(entries: Sequence[str]) -> dict[str, str]:
    conf = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"--conf {entry!r} must be KEY=VALUE, such as spark.executor.memory=4g")
        conf[key.strip()] = value.strip()
    return conf


def _py_files(given: str | None) -> list[str]:
    """The files, which the training function can import here, too, from now on."""
    paths = [path.strip() for path in (given or "").split(",") if path.strip()]
    for path in paths:
        if "://" in path:
            continue
        if not path.endswith(_PLAIN_FILES):
            raise SpecError(f"--py-files {path!r} must be one of {', '.join(_PLAIN_FILES)}: name files, not folders")
        if not os.path.isfile(path):
            raise SpecError(f"--py-files {path!r} does not exist: correct the path")
        folder = os.path.dirname(os.path.abspath(path))
        sys.path.insert(0, folder if path.endswith(".py") else os.path.abspath(path))
    return paths


@contextmanager
def _results(as_json: bool) -> Iterator[int]:
    """The file descriptor that the result goes to: stdout.

    With `as_json`, nothing else reaches it meanwhile: what the function's module prints, or the JVM, goes to stderr.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        if as_json:
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            yield kept
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _show(ended: Ended, out: int, as_json: bool) -> None:
    from sparktrain.driver.report import to_bytes

    rest = memoryview(to_bytes(ended.result) if as_json else _drawn(ended.summary, os.isatty(out)))
    try:
        while rest:
            rest = rest[os.write(out, rest) :]
    except BrokenPipeError:
        return  # whoever read it has seen enough


def _drawn(summary: "RenderableType", terminal: bool) -> bytes:
    from rich.console import Console

    text = StringIO()
    width = None if terminal else _PIPE_WIDTH
    Console(file=text, width=width, force_terminal=terminal, force_jupyter=False, highlight=False).print(summary)
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "".join(f"{line}\n" for line in lines).encode(sys.stdout.encoding or "utf-8", "replace")
