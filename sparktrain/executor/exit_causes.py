"""Finds the cause when a member ended without an outcome, from the status of its process. Pure."""

import signal
from collections.abc import Sequence

from sparktrain.protocol.frames import UNREACHABLE_STATUS
from sparktrain.protocol.pipe_messages import Exited
from sparktrain.state.outcome import Failure, FailureKind

_HINTS: dict[int, str] = {
    signal.SIGSEGV: "a native library crashed; the log shows where, if Python printed it",
    signal.SIGABRT: "a native library aborted, and may have printed why to the log",
    signal.SIGILL: "a native library needs an instruction that this host's processor lacks",
    signal.SIGFPE: "a native library divided an integer by zero",
    signal.SIGBUS: "memory backed by a file could not be read or written: is the disk or /dev/shm full?",
    signal.SIGXCPU: "the limit of processor time on this host is used up",
    signal.SIGXFSZ: "the limit of file size on this host is reached",
    signal.SIGHUP: "something outside of sparktrain asked the process to end",
    signal.SIGTERM: "something outside of sparktrain asked the process to end",
    signal.SIGKILL: "from outside of sparktrain, and not for lack of memory",
}

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
_FRAMEWORKS = {
    "jax": "JAX",
    "keras": "Keras",
    "lightgbm": "LightGBM",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "xgboost": "XGBoost",
}
SEARCHED_LINES = 500
"""Lines of a log that may have the cause: behind it come the stacks of all threads."""
_SHOWN_LINES = 20
_JAX_LOST = "the JAX distributed service detected fatal errors"
"""JAX aborts a member that has lost rank 0, which serves the gang, before the training function learns of it."""
_JAX_HINT = "JAX ends a member that has lost its connection to rank 0, so another member was lost before"


def classify(
    exited: Exited,
    *,
    stopped: bool = False,
    disconnected: bool = False,
    log_tail: tuple[str, ...] = (),
    frameworks: Sequence[str] = (),
) -> Failure:
    """The failure of a member without an outcome on its pipe. It shows the last lines of `log_tail`.

    `stopped`: the coordinator asked to end it. `disconnected`: its pipe ended long before its process, which the agent
    then killed. `frameworks` are the packages that it had imported when the function started.
    """
    is_follower = exited.status == -signal.SIGABRT and any(_JAX_LOST in line for line in log_tail)
    log_tail = log_tail[-_SHOWN_LINES:]
    if stopped:
        return Failure(FailureKind.STOPPED, f"stopped on request; {_ending(exited.status)}", log_tail=log_tail)
    if disconnected or exited.status == UNREACHABLE_STATUS:
        cause = "it closes file descriptors that it did not open (os.closerange?)"
        return Failure(FailureKind.EXIT, f"the function cut the process off from its agent: {cause}", log_tail=log_tail)
    if exited.status == -signal.SIGKILL and exited.memory_kills != 0:
        return Failure(FailureKind.MEMORY, _killed(exited.peak_rss_bytes, frameworks), log_tail=log_tail)
    if is_follower:
        summary = f"{_ending(exited.status)}: {_JAX_HINT}"
        return Failure(FailureKind.RING, summary, log_tail=log_tail)
    if exited.status < 0:
        hint = _HINTS.get(-exited.status)
        summary = _ending(exited.status) + (f": {hint}" if hint else "")
        kind = FailureKind.KILLED if -exited.status in _FROM_OUTSIDE else FailureKind.SIGNAL
        return Failure(kind, summary, log_tail=log_tail)
    summary = f"{_ending(exited.status)} before the function returned (os._exit, or a native library)"
    return Failure(FailureKind.EXIT, summary, log_tail=log_tail)


def _killed(peak_rss_bytes: int, frameworks: Sequence[str]) -> str:
    *names, last = ["Python", *(_FRAMEWORKS.get(package, package) for package in frameworks)]
    owners = f"{', '.join(names)} and {last} have" if names else f"{last} has"
    return (
        "killed by SIGKILL (exit code 137): most likely out of memory; "
        f"the process used up to {peak_rss_bytes // 2**20:,} MiB; lower the batch size, or raise "
        f"spark.executor.memoryOverhead, which is the memory that {owners}"
    )


def _ending(status: int) -> str:
    if status >= 0:
        return f"process exited with code {status}"
    ending_signal = _signal(-status)
    name = ending_signal.name if ending_signal else f"signal {-status}"
    return f"ended by {name} ({(signal.strsignal(-status) or 'unknown').lower()})"


def _signal(number: int) -> signal.Signals | None:
    try:
        return signal.Signals(number)
    except ValueError:  # a real-time signal
        return None
