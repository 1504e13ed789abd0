"""Turns an exception into text: no object of the user is pickled on the way to the driver. Pure."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from sparktrain.errors import FormError, OutOfStepError, RingError, UserError
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.training.agent_pipe import sendable
from sparktrain.training.collectives.ring_errors import MovedAway, causes
from sparktrain.training.frameworks.imported import ALL
from sparktrain.training.source_homes import Homes

SUMMARY_CHARS = 500
TRACEBACK_BYTES = 64 * 1024

_TRAINING_FOLDER = str(Path(__file__).parent)
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_ELSEWHERE = Homes()
_KERAS_ASKS = "register_keras_serializable"
"""Keras names it in its error for an object with a class that it cannot find while unpickling."""


MOVED = "this member continues in another process"
"""How the summary of a member starts that has left its ring for another one."""
_UNMAPPED = "failed to map segment"
"""In the linker's error for a library that finds no room in the address space."""
_ADDRESS_SPACE = (
    "the limit of its address space is too low for this library: leave spark.executor.pyspark.memory out, or raise "
    "the limit (ulimit -v) of this host"
)
_DUPLICATE_GPU = "Duplicate GPU detected"
"""In the error of NCCL, whichever framework calls it."""
_SHARED_GPU = (
    "two members of this gang have the same GPU, which NCCL refuses: give each member a GPU of its own, or connect "
    'PyTorch by init_process_group("gloo"); JAX has nothing else on GPUs, and trains on CPUs with JAX_PLATFORMS=cpu in '
    "env="
)


def of_exception(
    error: BaseException, ring_broke: Callable[[BaseException], bool] = lambda error: False, homes: Homes = _ELSEWHERE
) -> Failure:
    """The failure of a training function that raised `error`; `ring_broke` decides whether a broken ring caused it."""
    text = _traceback(error, homes)
    if isinstance(error, SystemExit):
        call = "sys.exit()" if error.code is None else f"sys.exit({_repr(error.code)})"
        return Failure(FailureKind.EXIT, _line(f"{call} was called before the function returned a result"), text)
    if isinstance(error, KeyboardInterrupt):
        summary = "KeyboardInterrupt: the process was sent SIGINT, or the function raised it"
        return Failure(FailureKind.EXCEPTION, summary, text)
    if isinstance(error, FormError):
        return Failure(FailureKind.FORM, _line(str(error)), text)
    if any(isinstance(cause, OutOfStepError) for cause in causes(error)):  # AutoGraph raises others from it
        return Failure(FailureKind.MISMATCH, _line(_summary(error)), text)
    if any(_DUPLICATE_GPU in _str(cause) for cause in causes(error)):  # no other ring of these members would do
        return Failure(FailureKind.EXCEPTION, _line(_SHARED_GPU), text)
    if isinstance(error, RingError) or ring_broke(error):
        return Failure(FailureKind.RING, _line(_summary(error)), text)
    # An error of a framework proves that it is imported; to ask all of them is as good as to ask those alone.
    if isinstance(error, MemoryError) or any(framework.is_out_of_memory(error) for framework in ALL):
        advice = "lower the batch size, or give trials more memory"
        return Failure(FailureKind.MEMORY, _line(_summary(error), f" ({advice})"), text)
    if isinstance(error, ImportError) and _UNMAPPED in _str(error):
        return Failure(FailureKind.MEMORY, _line(_summary(error), f" ({_ADDRESS_SPACE})"), text)
    return Failure(FailureKind.EXCEPTION, _line(_summary(error), homes.hint(error)), text)


def of_move(moved: MovedAway) -> Failure:
    """How a member ends that has left its ring for another process. It counts only where that is lost too."""
    return Failure(FailureKind.LOST, f"{MOVED} on {moved}")


def of_mismatch(mismatch: str, where: str) -> Failure:
    """The failure of a member that called other collectives than the others; `where` is a traceback as text."""
    return Failure(FailureKind.MISMATCH, _line(mismatch), where)


def where(frame: FrameType, called: CodeType) -> str:
    """The traceback of a thread, from the function with the code `called` on; empty where that has returned."""
    frames = list(traceback.walk_stack(frame))  # the innermost first
    codes = [stack_frame.f_code for stack_frame, _ in frames]
    below = frames[: codes.index(called)] if called in codes else []
    return sendable("".join(traceback.StackSummary.extract(iter(below[::-1])).format()))


def of_loading(error: BaseException, host: str, homes: Homes = _ELSEWHERE) -> Failure:
    """The failure of a member on `host` that could not load its function."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        bring = "bring it with sc.addPyFile(...) / --py-files / spark.addArtifacts(..., pyfile=True)"
        summary = f"module {error.name!r} cannot be imported on executor host {host}; {bring}, or install it there"
    else:
        summary = f"the function cannot be loaded on executor host {host}: {_summary(error)}"
    step = "; build Keras objects within the function" if _KERAS_ASKS in _str(error) else homes.hint(error)
    return Failure(FailureKind.LOAD, _line(summary, step), _traceback(error, homes))


def _summary(error: BaseException) -> str:
    message = _str(error)
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def _traceback(error: BaseException, homes: Homes) -> str:
    """The traceback as text, from the first frame of the user's code on; cut in the middle when it is too long."""
    try:
        trace = traceback.TracebackException(type(error), error, _users(error.__traceback__))
        if isinstance(error, UserError):  # the user's line explains more than ours below it
            trace.stack[:] = [frame for frame in trace.stack if not frame.filename.startswith(_PACKAGE)]
        homes.rename(trace)
        text = sendable("".join(trace.format()))
    except Exception as broken:  # such as a cause that is no exception, or a group changed while it is read
        return sendable(f"{_summary(error)}\n(its traceback cannot be shown: {_summary(broken)})\n")
    data = text.encode()
    if len(data) <= TRACEBACK_BYTES:
        return text
    half = TRACEBACK_BYTES // 2 - 32
    return f"{data[:half].decode(errors='ignore')}\n... (cut) ...\n{data[-half:].decode(errors='ignore')}"


def _users(trace: TracebackType | None) -> TracebackType | None:
    frame = trace
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_TRAINING_FOLDER):
        frame = frame.tb_next
    return frame


def _line(text: str, ending: str = "") -> str:
    """`text` as one line, capped so that `ending` fits."""
    line = " ".join(sendable(text).split())
    room = SUMMARY_CHARS - len(ending)
    return (line if len(line) <= room else f"{line[: room - 3]}...") + ending


def _str(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"(its message cannot be shown: {type(broken).__name__})"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"<{type(value).__name__}>"
