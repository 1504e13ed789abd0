"""Checks what a training function ships, reports, returns and saves in one batch, in a process of its own."""

import importlib
import math
import os
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from msgspec import Struct, field, to_builtins

from sparktrain.cluster.preflight import check_installed
from sparktrain.cluster.stderr_filter import OF_TENSORFLOW, stderr_without
from sparktrain.config.backends import AUTO, Backend, backend_named
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.uses import STRATEGY, names
from sparktrain.driver.backend_choice import Choice, check_imports, choose, keras_setting
from sparktrain.errors import UserError
from sparktrain.protocol.code_origins import NAME as ORIGINS
from sparktrain.rundir.layout import EXPORTED, MODEL
from sparktrain.search.space import single
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.testing.in_process import LocalContext, local_context
from sparktrain.training import attempt, failure
from sparktrain.usercode.framework_imports import framework_imports
from sparktrain.usercode.keras_choice import keras_choice
from sparktrain.usercode.serialize import pack, preload_choice, sizes_of_captures
from sparktrain.usercode.target import Target, check_call, resolve

OK = "ok"
FAILED = "failed"
REFUSED = "refused"
TIMEOUT = "timeout"
CRASHED = "crashed"
"""How a check ends: no problem; the function failed; the call is wrong; the time was over; its process died."""
_CLUSTER = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy")


class CheckRequest(Struct, frozen=True):
    """The function to check, and how to call it."""

    target: str
    params: dict[str, Any]
    workers: int = 1
    backend: str = AUTO
    metric: str | None = None
    seed: int = 0
    env: dict[str, str] = {}
    data: dict[str, list[str]] = {}
    """Files for `ctx.dataset`, by name."""
    timeout_s: float = 120.0
    folds: int = 1


class CheckEnd(Struct, kw_only=True):
    """How a check has ended."""

    status: str = OK
    problem: str = ""
    """Why the status is not `ok`, in one line."""
    traceback: str = ""
    seconds: float = 0.0
    """From the call of the function to its end."""


class Shipment(Struct):
    """What travels to each agent."""

    size_bytes: int = field(default=0, name="shipped_bytes")
    files: dict[str, int] = field(default_factory=dict, name="shipped_files")
    """Bytes of each of the user's files that travel with the function, by name."""
    captures: dict[str, int] = {}
    """Values outside of the function that it reads, with their pickled bytes; each trial creates them by its import."""
    preload: tuple[str, ...] = ()
    """Modules that are imported before trials start."""


class CheckedGang(Struct):
    """The gang that the function is checked for."""

    backend: str | None = None
    reason: str = field(default="", name="backend_reason")
    mirrored: bool = False
    """Whether it ran as rank 0 of a gang, with the same values assumed for the other members."""


class CheckAnswer(Struct):
    """The metrics of the function."""

    reports: list[dict[str, Any]] = []
    result: dict[str, float | str] | None = None
    """Metrics, here and in `reports`; a number that is not finite has its name, such as "nan"."""
    metric: str | None = None
    """The one that the result must contain."""


class CheckFiles(Struct):
    """The files that the function has left."""

    checkpoints: dict[str, int] = {}
    """Bytes of each checkpoint, by step."""
    log_dir: list[str] = field(default_factory=list, name="files")
    """Files in `ctx.log_dir`."""
    model_exported: bool = False


class CheckReport(Struct, kw_only=True):
    """The result of a check."""

    function: str
    params: dict[str, Any]
    workers: int
    end: CheckEnd = field(default_factory=CheckEnd)
    shipment: Shipment = field(default_factory=Shipment)
    gang: CheckedGang = field(default_factory=CheckedGang)
    answer: CheckAnswer = field(default_factory=CheckAnswer)
    files: CheckFiles = field(default_factory=CheckFiles)
    keras_unsupported: list[str] = []
    """What Keras refuses under a strategy that connects several members."""
    notices: list[str] = []
    hints: list[str] = []

    def document(self) -> dict[str, Any]:
        """The document of `sparktrain check --json`."""
        flat: dict[str, Any] = {}
        for name, value in to_builtins(self).items():
            flat |= value if isinstance(getattr(self, name), Struct) else {name: value}
        return flat


class FunctionCheck:
    """One check. `run` belongs to the main thread of a process that ends afterwards."""

    def __init__(self, request: CheckRequest, deliver: Callable[[CheckReport], None]) -> None:
        """`deliver` gets the report, once; in another thread when the time is over."""
        self._request = request
        self._deliver = deliver
        self._delivering = threading.Lock()
        self.report = CheckReport(
            function=request.target,
            params=request.params,
            workers=request.workers,
            answer=CheckAnswer(metric=request.metric),
        )
        self._context: LocalContext | None = None
        self._unsupported: Callable[[], list[str]] = list

    def run(self) -> None:
        """Check the function and deliver the report. Blocks for imports, then for the time of the request at most."""
        try:
            self._examine()
        except UserError as error:
            self.report.end.status = REFUSED
            self.report.end.problem = str(error)
        self._finish()

    # ---- inside

    def _examine(self) -> None:
        request = self._request
        report = self.report
        with stderr_without(OF_TENSORFLOW):
            target = resolve(request.target)
        check_call(target.function, single(request.params), "--param")
        strategy = names(target.function, STRATEGY)
        gang = self._gang(target, strategy)
        check_installed(gang)
        self._ship(target)
        choice = preload_choice(target, gang, request.env)
        report.shipment.preload = choice.modules
        report.hints += choice.notes
        self._hint(target, strategy)
        with stderr_without(OF_TENSORFLOW):
            for module in report.shipment.preload:
                with suppress(ImportError):  # the function's own import reports it
                    importlib.import_module(module)
        self._call(target, gang, strategy)

    def _gang(self, target: Target, strategy: bool) -> GangSpec:
        request = self._request
        choice = Choice(Backend.NONE, "one process trains")
        if request.workers > 1:
            choice = self._choice(target, strategy)
            self.report.gang.backend = choice.backend.value
            self.report.gang.reason = choice.why
        return GangSpec(workers=request.workers, backend=choice.backend)

    def _choice(self, target: Target, strategy: bool) -> Choice:
        request = self._request
        gang = GangSpec(workers=request.workers)
        imports = framework_imports(target)
        if request.backend == AUTO:
            keras = keras_setting(lambda: keras_choice(target), request.env)
            return choose(gang, imports, keras, strategy=strategy)
        named = replace(gang, backend=backend_named(request.backend))
        check_imports(named, imports)
        return Choice(named.backend, "it was asked for")

    def _ship(self, target: Target) -> None:
        code = pack(target)
        report = self.report
        report.shipment.size_bytes = len(code.function) + len(code.archive)
        if code.archive:
            with zipfile.ZipFile(BytesIO(code.archive)) as archive:
                sizes = {entry.filename: entry.file_size for entry in archive.infolist() if entry.filename != ORIGINS}
                report.shipment.files = sizes
        plain = (ModuleType, FunctionType, BuiltinFunctionType, type)
        report.shipment.captures = {
            str(capture): size
            for size, capture in sizes_of_captures(target.function)
            if not isinstance(capture.value, plain)
        }

    def _hint(self, target: Target, strategy: bool) -> None:
        hints = self.report.hints
        workers = self._request.workers
        if workers > 1 and strategy:
            hints.append(
                f"ctx.strategy() connects {workers} members in a gang alone: the batch was trained by one member"
            )
        hints += [
            f"it names {symbol}, which needs a real gang: make it by ctx.strategy(), and try it with sparktrain run"
            for symbol in _CLUSTER
            if names(target.function, symbol)
        ]

    def _call(self, target: Target, gang: GangSpec, strategy: bool) -> None:
        request = self._request
        report = self.report
        report.gang.mirrored = gang.size > 1 and not strategy
        context = local_context(
            request.params,
            gang.size if report.gang.mirrored else 1,
            backend=gang.backend,
            mirrored=report.gang.mirrored,
            metric=request.metric,
            seed=request.seed,
            env=request.env,
            data=request.data,
            folds=request.folds,
        )
        with context as ctx:
            self._context = ctx
            ctx.stop_after_report()
            if "keras" in sys.modules:
                from sparktrain.testing.one_batch import OneBatch

                batch = OneBatch()
                batch.limit()
                self._unsupported = batch.unsupported if request.workers > 1 and strategy else list
            timer = threading.Timer(request.timeout_s, self._overdue, [threading.get_ident()])
            timer.daemon = True
            timer.start()
            self._conclude(ctx.outcome(target.function))
            timer.cancel()
            self._observe()
        if report.end.status == FAILED and request.workers == 1 and names(target.function, "size"):
            report.hints.append("ctx.size is 1 here: --workers N checks the function as rank 0 of a gang of N")

    def _conclude(self, outcome: Outcome) -> None:
        report = self.report
        failed = outcome.failure
        report.end.seconds = outcome.seconds
        report.answer.result = None if outcome.metrics is None else _named(outcome.metrics)
        if failed is not None:
            report.end.status = _status(failed)
            report.end.problem = failed.summary
            report.end.traceback = failed.traceback

    def _observe(self) -> None:
        """What the function has left so far."""
        report = self.report
        ctx = self._context
        if ctx is None:
            return
        report.answer.reports = [{"step": record.step, "metrics": _named(record.metrics)} for record in ctx.reports]
        report.notices = list(ctx.notices)
        folder = Path(ctx.log_dir)
        report.files.log_dir = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )
        report.files.model_exported = any((folder.parent / name).exists() for name in (MODEL, EXPORTED))
        with suppress(OSError):
            report.files.checkpoints = {str(step): size for step, size in ctx.saved_bytes.items()}
        report.keras_unsupported = self._unsupported()

    def _overdue(self, thread: int) -> None:
        report = self.report
        frame = sys._current_frames().get(thread)
        report.end.status = TIMEOUT
        report.end.problem = (
            f"it did not end within {self._request.timeout_s:g} s: a loop of its own should end when ctx.should_stop() "
            "returns True, which it does here after the first ctx.report(); or pass a longer --timeout"
        )
        if frame is not None:
            report.end.traceback = failure.where(frame, attempt.call.__code__)
        with suppress(Exception):  # a function that is still running changes what is looked at
            self._observe()
        self._finish()
        os._exit(0)

    def _finish(self) -> None:
        if self._delivering.acquire(blocking=False):
            self._deliver(self.report)


def _named(metrics: dict[str, float]) -> dict[str, float | str]:
    """With names in place of the numbers that JSON lacks."""
    return {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}


def _status(failed: Failure) -> str:
    alone = failed.kind is FailureKind.EXCEPTION and failed.summary.startswith("GangNeededError")
    return REFUSED if alone else FAILED
