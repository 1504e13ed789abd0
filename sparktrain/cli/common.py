"""What the commands of the command line have in common: their session, their output, and their exit codes."""

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sparktrain.base.boundary import TERMINATED, DriverTerminated, lost_folder
from sparktrain.base.optional_packages import is_submitted
from sparktrain.errors import InfraError, SparktrainError, SpecError, UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sparktrain.display.progress import Display
    from sparktrain.runs.sweep_outcome import SweepOutcome
    from sparktrain.usercode.target import Target

EXIT_CODES = {
    0: "at least one trial succeeded, and none was lost",
    1: "an unexpected error, perhaps a bug of sparktrain",
    2: "the call is wrong: an option, a file, the function or the Spark session",
    3: "no trial succeeded, or --max-failures of them failed",
    4: "trials were lost: the cluster interrupted them too often",
    5: "the cluster failed before the end; the same call may succeed later",
    6: "stopped by --timeout before every trial had ended",
    7: "fsck: something is corrupt, but the run can be resumed",
    8: "fsck: the run can be resumed only after --repair, or after a copy was put back",
    130: "interrupted by Ctrl-C",
    143: "ended by SIGTERM; the same call resumes the run",
}
TRAINING_CODES = {code: meaning for code, meaning in EXIT_CODES.items() if code not in (7, 8)}
"""The exit codes of the commands that train."""
LOOKING_CODES = {
    0: "what was asked for is shown, or done",
    1: EXIT_CODES[1],
    2: "the call is wrong: an option, or the run directory",
    5: "the store failed; the same call may succeed later",
    130: EXIT_CODES[130],
}
"""The exit codes of the commands that inspect a run directory."""
_PLAIN_FILES = (".py", ".zip", ".egg", ".whl")
PIPE_WIDTH = 4000
"""So wide that no line of a file or a pipe wraps."""


@dataclass(frozen=True, kw_only=True)
class CommandRequest:
    """The options of a command, not yet checked."""

    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    """The options that were given, by their names in `Options`, and `agents`."""
    master: str | None = None
    conf: tuple[str, ...] = ()
    py_files: str | None = None
    as_json: bool = False
    quiet: bool = False
    debug: bool = False
    local: bool = False
    """Train in processes of this machine, without Spark."""
    slots: int | None = None
    tensorflowonspark: bool = False
    """Serve `import tensorflowonspark` in this process and in those that train."""
    script: dict[str, Any] = field(default_factory=dict)
    """What `sparktrain.script` takes beside the file; `arguments` are those of the script."""


@dataclass(frozen=True)
class PreparedCommand:
    """A checked request, as the driver takes it."""

    session: Callable[[], Any]
    """Makes the Spark session; a context manager."""
    engine: Callable[[], Any]
    """Makes the engine with its slots; a context manager."""
    display: "Display"
    close: Callable[[], None] = lambda: None
    """Ends processes that were started ahead of need."""


@dataclass(frozen=True)
class CommandOutcome:
    """What a command has to show."""

    result: "SweepOutcome"
    summary: "RenderableType"
    """For people."""


def perform(request: CommandRequest, work: Callable[[], CommandOutcome]) -> int:
    """Run `work`, show the result, and turn every error into its exit code. Blocks."""
    if not request.debug:
        # Py4J logs a traceback for each socket that Ctrl-C closes under it.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return watch_to_end(work, as_json=request.as_json, debug=request.debug)


def watch_to_end(work: Callable[[], CommandOutcome], *, as_json: bool, debug: bool) -> int:
    """As `perform`, for a command without options of training."""
    from sparktrain.runs.sweep_outcome import CODE_OF_STATUS

    def show() -> int:
        with _results(as_json) as descriptor:
            ended = work()
            out = Output(descriptor, as_json)
            with suppress(BrokenPipeError):  # the reader has seen enough
                _show(ended, out)
            return CODE_OF_STATUS[ended.result.status]

    return _guarded(show, debug)


def look(work: "Callable[[Output], int]", *, as_json: bool, debug: bool) -> int:
    """Run `work`, which shows what it finds, and return its exit code or that of its error. Blocks."""

    def show() -> int:
        with _results(as_json) as descriptor:
            try:
                return work(Output(descriptor, as_json))
            except BrokenPipeError:
                return 0  # the reader has seen enough

    return _guarded(show, debug)


class Output:
    """Writes the answer of a command. With `as_json`, nothing else reaches its descriptor."""

    def __init__(self, descriptor: int, as_json: bool, pipe_width: int = PIPE_WIDTH) -> None:
        """`pipe_width` is how wide pictures are where `descriptor` is no terminal."""
        self.as_json = as_json
        self._descriptor = descriptor
        self._pipe_width = pipe_width

    @property
    def terminal(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, content: bytes) -> None:
        """Write all of it. Raises BrokenPipeError when the reader has closed its end."""
        # A pipe takes as many bytes as it has room for.
        remainder = memoryview(content)
        while remainder:
            remainder = remainder[os.write(self._descriptor, remainder) :]

    def show(self, picture: "RenderableType") -> None:
        """Draw `picture` for people; raises as `write`."""
        self.write(_drawn(picture, None if self.terminal else self._pipe_width))

    def document(self, value: Any, *, lines: bool = False) -> None:
        """Write one JSON object; with `lines`, on one line. Raises as `write`."""
        written = json.dumps(value, indent=None if lines else 2, ensure_ascii=True, allow_nan=False)
        self.write(written.encode() + b"\n")


def _guarded(work: Callable[[], int], debug: bool) -> int:
    try:
        return work()
    except KeyboardInterrupt as error:
        return fail(str(error) or "interrupted", 130)
    except DriverTerminated as error:
        return fail(str(error) or "ended by SIGTERM", TERMINATED)
    except SparktrainError as error:
        if debug:
            traceback.print_exc()
        code = 2 if isinstance(error, UserError) else 5 if isinstance(error, InfraError) else 1
        return fail(str(error), code)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, FileNotFoundError) and (lost := lost_folder()) is not None:
            return fail(str(lost), 2)
        hint = "" if debug else "; --debug shows where"
        return fail(f"unexpected {type(error).__name__}: {error}{hint}", 1)


def load(request: CommandRequest) -> "Target":
    """Import the module of the function that the request names, or find the script. Raises FunctionError, SpecError.

    Keras imports its wrappers for scikit-learn later, where they are used: this process only sends the function.
    """
    from sparktrain.base import deferred_wrappers
    from sparktrain.cluster.stderr_filter import OF_TENSORFLOW, stderr_without
    from sparktrain.driver.scripts import script
    from sparktrain.usercode.script_target import is_script_file
    from sparktrain.usercode.target import check_file, resolve

    if is_script_file(request.target):
        options = dict(request.script)
        return cast("Target", script(request.target, *options.pop("arguments", ()), **options))
    if request.target.endswith(".py") and not Path(request.target).exists():
        check_file(Path(request.target))
    if request.script:
        first = next(iter(request.script)).replace("_", "-")
        name = "arguments after --" if first == "arguments" else f"--{first}"
        raise SpecError(
            f"{name}: only a script takes them, and {request.target} is none; pass a file that does something when it "
            "is run, such as train.py, or leave them out"
        )
    if request.tensorflowonspark:
        from sparktrain.base.wings import from_wing

        from_wing("install")()
    deferred_wrappers.defer()
    with stderr_without(OF_TENSORFLOW):
        return resolve(request.target)


def prepare(request: CommandRequest, app_name: str) -> PreparedCommand:
    """Check what needs neither Spark nor the function. Raises UserError."""
    if request.local:
        return _prepare_local(request)
    if request.slots is not None:
        raise SpecError("--slots is for --local alone: add --local, or name the number of slots with --agents")

    from sparktrain.base.optional_packages import require_spark
    from sparktrain.display.live import choose_display

    require_spark("this command")
    from sparktrain.cluster.spark_session import local_session

    conf = conf_of(request.conf)
    py_files = _py_files(request.py_files)

    @contextmanager
    def session() -> Iterator[Any]:
        with local_session(request.master, conf, app_name, silent if request.quiet else print_line) as spark:
            for path in py_files:
                spark.sparkContext.addPyFile(path)
            yield spark

    @contextmanager
    def engine() -> Iterator[Any]:
        from sparktrain.driver.engines.selection import engine_of

        with session() as spark:
            yield engine_of(spark)

    return PreparedCommand(session, engine, choose_display(quiet=request.quiet))


def _prepare_local(request: CommandRequest) -> PreparedCommand:
    """As `prepare`, for a run on this machine."""
    options = {
        "--master": request.master,
        "--conf": request.conf,
        "--py-files": request.py_files,
        "spark-submit": is_submitted(),
    }
    if wrong := [option for option, value in options.items() if value]:
        step = "PYTHONPATH finds modules here" if wrong == ["--py-files"] else "leave out one of them"
        verb = "is" if len(wrong) == 1 else "are"
        raise SpecError(f"--local starts no Spark, which {' and '.join(wrong)} {verb} for: {step}")

    from sparktrain.config.quantities import count
    from sparktrain.driver.engines.nursery_process import NurseryImports, NurseryProcess

    slots = count(2 if request.slots is None else request.slots, "slots", least=1)
    nursery = NurseryProcess(NurseryImports())
    nursery.start()  # it imports what agents need while this process imports what a driver needs

    @contextmanager
    def engine() -> Iterator[Any]:
        from sparktrain.driver.engines.local_engine import LocalEngine, local

        yield LocalEngine(local(slots), nursery=nursery)

    from sparktrain.display.live import choose_display

    return PreparedCommand(engine, engine, choose_display(quiet=request.quiet), nursery.close)


def print_line(line: str) -> None:
    """Print `line` on stderr, if it can still be written."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Print nothing: for `--quiet`."""


def fail(message: str, code: int) -> int:
    """Print `message` on stderr, and return the exit code `code`."""
    print_line(f"error: {message}")
    return code


def spark_home() -> str | None:
    """The Spark that the user's environment names."""
    return os.environ.get("SPARK_HOME")


def conf_of(entries: Sequence[str]) -> dict[str, str]:
    """The configuration of entries `KEY=VALUE`. Raises SpecError."""
    conf = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"--conf {entry!r} must be KEY=VALUE, such as spark.executor.memory=4g")
        conf[key.strip()] = value.strip()
    return conf


def variables_of(entries: Sequence[str] | None) -> dict[str, Any]:
    """The settings `env` and `forward_env` of entries `NAME=VALUE` and `NAME`, not yet checked."""
    if not entries:
        return {}
    pairs = [entry.partition("=") for entry in entries]
    return {
        "env": {name: value for name, equals, value in pairs if equals},
        "forward_env": tuple(name for name, equals, _ in pairs if not equals),
    }


def _py_files(text: str | None) -> list[str]:
    """The files of --py-files, which can be imported in this process from now on."""
    paths = [path.strip() for path in (text or "").split(",") if path.strip()]
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

    With `as_json`, nothing else reaches it: the output of the function's module and of the JVM goes to stderr.
    """
    sys.stdout.flush()
    stdout_copy = os.dup(1)
    try:
        if as_json:
            # The JVM and native libraries write to the descriptor, and know no `sys.stdout`.
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            yield stdout_copy
    finally:
        sys.stdout.flush()
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)


def _show(ended: CommandOutcome, out: Output) -> None:
    from sparktrain.runs.results_json import to_bytes

    if out.as_json:
        out.write(to_bytes(ended.result))
    else:
        out.show(ended.summary)


def _drawn(summary: "RenderableType", width: int | None) -> bytes:
    """`summary` on so many columns, without styles; None draws for the terminal."""
    from rich.console import Console

    text = StringIO()
    # Without emoji rich does not import its table of them.
    console = Console(
        file=text, width=width, force_terminal=width is None, force_jupyter=False, highlight=False, emoji=False
    )
    console.print(summary)
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "".join(f"{line}\n" for line in lines).encode(sys.stdout.encoding or "utf-8", "replace")
