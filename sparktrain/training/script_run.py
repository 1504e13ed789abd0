"""Runs a script of the user in a member, as Python runs it: with arguments, under the name `__main__`.

What a trial gets of a script: its parameters become arguments, spelled as the script spells its options; its metrics
are what it has reported last, what a pattern finds in its output, or what it writes to a file of JSON.
"""

import json
import os
import re
import runpy
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sparktrain.base.threads import spawn
from sparktrain.config.script_words import ScriptCall, words_of
from sparktrain.errors import UserError
from sparktrain.state.outcome import REFUSES_ARGUMENTS
from sparktrain.training.process_setup import flush
from sparktrain.training.script_files import keep_files, show_deleted

if TYPE_CHECKING:
    from sparktrain.training.context import TrainContext

_LOOK_S = 0.5
"""Interval at which a pattern is searched in what the script has printed since."""
_TAIL_BYTES = 4096
_OF_TYRO = "for full helptext"
"""Starts the last line of a frame in which tyro names the arguments that it refuses."""
_REFUSALS = {2: ("usage:", _OF_TYRO), 1: ("fatal flags parsing error", "could not override")}
"""For exit codes of parsers that refuse arguments, the start of a line that they print then, in small letters: of
argparse, click and typer; of tyro; of absl; of Hydra."""
_UNUSED = "not used by the HfArgumentParser"
"""In an error of transformers for options that none of its classes has."""
_IMPORTS = re.compile(r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+)?import[ \t]+(.*)", re.M)
_TERMINATED = 128 + signal.SIGTERM
"""The exit code that shells give to a program that ended by SIGTERM."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?![\d,])")
"""A number with commas between its thousands, as the format `:,` writes it."""
_FRAME = " \t│|"
"""Around the lines of an error that Rich or tyro prints."""
_FRAME_TOP = "╭"


def run_script(module: str, arguments: Sequence[str], path: str) -> None:
    """Run the file of `module` as `__main__`, in the working directory of this process.

    `path` is that of the script as the user wrote it; empty for a module that Python runs by `-m`. Blocks until the
    script ends. Raises UserError for another exit code than 0, and what the script raises.
    """
    if code := _exit_code(module, arguments, path):
        raise UserError(f"the script has called sys.exit({code!r})")


def _exit_code(module: str, arguments: Sequence[str], path: str) -> Any:
    """What the script passes to `sys.exit`; None where it ends by itself. A process that it has forked ends in here."""
    sys.argv[:] = [path, *arguments]
    pid = os.getpid()
    code: Any = None
    threads = threading.enumerate()
    try:
        try:
            if path:
                _run_file(module, path)
            else:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
        finally:
            _await_threads(threads)
    except SystemExit as end:
        code = end.code or (_TERMINATED if _is_of_termination(end) else None)
    except BaseException:
        if os.getpid() == pid:
            raise
        traceback.print_exc()
        code = 1
    if os.getpid() != pid:
        _end_fork(code)
    return code


def _await_threads(known: Sequence[threading.Thread]) -> None:
    """Wait for threads that the script has started, but for `known` ones, as Python does. The trial has the deadlines.

    Threads of executors end when a process ends; until then they wait for work.
    """
    executors = sys.modules.get("concurrent.futures.thread")
    # Private: no public name sets them apart from threads that end by themselves.
    waiting = {*known, *getattr(executors, "_threads_queues", ())}
    while running := [thread for thread in threading.enumerate() if not thread.daemon and thread not in waiting]:
        running[0].join()


def _is_of_termination(end: SystemExit) -> bool:
    """Whether the script's handler of SIGTERM has ended it: it was stopped, and has not trained to its end."""
    handler = getattr(signal.getsignal(signal.SIGTERM), "__code__", None)
    return handler is not None and any(frame.f_code is handler for frame, _ in traceback.walk_tb(end.__traceback__))


def _end_fork(code: Any) -> NoReturn:
    """End a process that the script has forked, with the exit code that Python makes of what `sys.exit` got."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit(code or 0)


def _run_file(module: str, path: str) -> None:
    origin = _file_of(module)
    names = vars(sys.modules["__main__"])
    if "." in module:  # a script in a package, from which it and its child processes import
        names["__spec__"] = find_spec(module)
        names["__package__"] = module.rpartition(".")[0]
    # Files beside the script are where it lies, on hosts that have it; its code is what the driver has sent.
    file = os.path.abspath(path) if os.path.exists(path) else origin
    names["__file__"] = file
    exec(compile(Path(origin).read_bytes(), file, "exec", dont_inherit=True), names)


def _file_of(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def run_trial(fields: dict[str, Any], /, ctx: "TrainContext", **params: Any) -> dict[str, float]:
    """Run a script once with the parameters of a trial; `fields` are those of a `ScriptCall`. Returns its metrics.

    Blocks until the script ends. Raises UserError for another exit code than 0 and where the metric of the run is
    missing, and what the script raises.
    """
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    call = ScriptCall(**fields | lists)
    _check_named(call.metric_from, ctx.metric)
    source = _source_of(call.module)
    arguments = [*call.arguments, *words_of(call.form, params, source)]
    started_in = Path.cwd()
    print(f"[sparktrain] {shlex.join([call.path, *arguments])}", flush=True)
    follower = _OutputFollower(ctx, call.metric_from) if call.metric_from and ctx.rank == 0 else None
    try:
        code = _exit_code(call.module, arguments, call.path)
    except FileNotFoundError as error:
        if (local_file := _where_called(call, error)) is None:
            raise
        raise UserError(f"{error}: each trial has a working directory of its own, so name {local_file}") from error
    except Exception as error:
        if not _is_refusal(error) or ctx.reported:
            raise
        raise UserError(f"{REFUSES_ARGUMENTS}: {error}") from error
    finally:
        if follower is not None:
            follower.end()
        keep_files(call.keep_files, started_in, Path(ctx.log_dir))
        show_deleted(started_in, call.metric_file)
    if code:
        raise UserError(_of_exit(code, _last_lines(_log_of(ctx)), has_reported=bool(ctx.reported)))
    metrics = dict(ctx.reported)
    if call.metric_file and ctx.rank == 0:
        metrics |= _of_file(call.metric_file, started_in)
    if ctx.rank == 0 and ctx.metric is not None and ctx.metric not in metrics:
        raise UserError(_missing(call, ctx.metric))
    return metrics


def _source_of(module: str) -> str:
    """The text of a script and of the modules beside it that it imports, for one of these may have its parser."""
    script = Path(_file_of(module))
    root = script.parents[module.count(".")]
    texts: dict[Path, str] = {}
    todo = [script]
    for file in todo:
        texts[file] = file.read_text(errors="replace")
        files = dict.fromkeys(_imported_files(texts[file], file.parent, root))
        todo.extend(path for path in files if path not in todo and path.is_file())
    return "\n".join(texts.values())


def _imported_files(source: str, folder: Path, root: Path) -> Iterator[Path]:
    """Where modules that a file in `folder` imports would be; those without a dot in front are in `root`."""
    for dots, package, names in _IMPORTS.findall(source):
        imported = re.findall(r"[\w.]+", names)
        parts = [package, *(f"{package}.{name}".lstrip(".") for name in imported)] if dots or package else imported
        for part in filter(None, parts):
            module = (folder if dots else root).joinpath(*part.split("."))
            yield from (module.with_suffix(".py"), module / "__init__.py")


def _check_named(pattern: str, metric: str | None) -> None:
    if pattern and metric is None and not re.compile(pattern).groupindex:
        raise UserError(
            f"metric_from ({pattern}) has no named group, and the run names no metric: pass metric= (--metric), or "
            "name the group, such as '(?P<loss>[0-9.]+)'"
        )


def _where_called(call: ScriptCall, error: FileNotFoundError) -> str | None:
    """The file that a script has not found, where the user has called."""
    name = error.filename
    if not isinstance(name, str) or os.path.isabs(name):
        return None
    file = os.path.join(call.folder, name)
    return file if os.path.exists(file) else None


def _is_refusal(error: Exception) -> bool:
    """Whether a parser has refused arguments by `error`: flags of absl without `app.run`, or that of transformers."""
    flags = sys.modules.get("absl.flags")
    return (flags is not None and isinstance(error, flags.Error)) or _UNUSED in str(error)


def _of_file(path: str, started_in: Path) -> dict[str, Any]:
    file = Path(path) if os.path.exists(path) else started_in / path  # a script may change its directory
    try:
        metrics = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"metric_file ({path}) has no metrics: {error}; have the script write an object of JSON"
        ) from None
    if not isinstance(metrics, dict):
        raise UserError(f"metric_file ({path}) has a {type(metrics).__name__}, an object of JSON is expected")
    return metrics


def _missing(call: ScriptCall, metric: str) -> str:
    if call.metric_from:
        return f"the script has ended, and nothing that it printed matches metric_from ({call.metric_from}): correct it"
    where = f"in {call.metric_file}" if call.metric_file else f"by sparktrain.report({metric}=...)"
    return (
        f"the script has ended without the metric {metric!r} {where}: report it there, or name where its output has "
        f"it, such as --metric-from '{metric}=([0-9.]+)'"
    )


def _log_of(ctx: "TrainContext") -> Path:
    return Path(ctx.log_dir).parent / "log.txt"


def _of_exit(code: Any, lines: Sequence[str], *, has_reported: bool) -> str:
    """What the script has done, and its last line: there parsers name the argument that they refuse."""
    last = lines[-1] if lines else "nothing"
    usages = _REFUSALS.get(code, ()) if isinstance(code, int) else ()
    starts = [index for index, line in enumerate(lines) if line.lower().startswith(usages)]
    if not starts or has_reported:
        return f"the script has called sys.exit({code!r}); it printed last: {last}"
    if last.lower().startswith(_OF_TYRO):
        tops = [index for index, line in enumerate(lines) if line.startswith(_FRAME_TOP)]
        return f"{REFUSES_ARGUMENTS}; it printed last: {' '.join(lines[max(tops, default=-1) + 1 : -1])}"
    return f"{REFUSES_ARGUMENTS}; it printed last: {last}; {' '.join(lines[starts[-1] : -1])}"


def _last_lines(log: Path) -> list[str]:
    """The last lines of a log that have a word, some of them within a frame."""
    flush()
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [line.strip(_FRAME) for line in lines if any(map(str.isalnum, line))]


class _OutputFollower:
    """Reports what a pattern finds in the log of this trial, while the script runs: each match is a step."""

    def __init__(self, ctx: "TrainContext", pattern: str) -> None:
        self._ctx = ctx
        self._pattern = re.compile(pattern, re.MULTILINE)
        self._log = _log_of(ctx)
        self._read = self._log.stat().st_size
        """Bytes that were searched."""
        self._ended = False
        self._wake = threading.Event()
        self._thread = spawn(self._follow, "sparktrain-metric-from")

    def end(self) -> None:
        """Report what the script has printed last. Blocks for a moment."""
        flush()  # a script may have closed or replaced its streams
        self._ended = True
        self._wake.set()
        self._thread.join()

    def _follow(self) -> None:
        while True:
            is_last = self._ended
            self._search(is_last)
            if is_last:
                return
            self._wake.wait(_LOOK_S)

    def _search(self, is_last: bool) -> None:
        with self._log.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        content = content.replace(b"\r", b"\n")  # after each state of a progress bar
        whole = content if is_last else content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for match in self._pattern.finditer(whole.decode(errors="replace")):
            metrics = _of_match(match, self._ctx.metric)
            if metrics:
                self._ctx.report(self._ctx.next_step, **metrics)


def _of_match(match: re.Match[str], metric: str | None) -> dict[str, float]:
    groups: list[tuple[str, str | int]] = [(name, name) for name in match.groupdict()]
    if not groups and metric is not None:
        groups = [(metric, 1)]
    metrics = {name: _number_of(match, group) for name, group in groups}
    return {name: value for name, value in metrics.items() if value is not None}


def _number_of(match: re.Match[str], group: str | int) -> float | None:
    """The number in a group: the whole one where a pattern such as [0-9.]+ ends within 1e-05, or takes a full stop."""
    if grouped := _GROUPED.match(match[group] or ""):
        return float(grouped[0].replace(",", ""))
    number = _NUMBER.match(match.string, match.start(group)) if match[group] else None
    if number is not None and number.end() > match.end(group):
        return float(number[0])
    try:
        return float(match[group])
    except (TypeError, ValueError):
        return float(number[0]) if number is not None else None
