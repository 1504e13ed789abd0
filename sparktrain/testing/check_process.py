"""Starts the process of a check, waits for its report, and ends it with all that it has started."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from sparktrain.base import process_tree
from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.decoding import from_json
from sparktrain.testing.function_check import CRASHED, TIMEOUT, CheckAnswer, CheckEnd, CheckReport, CheckRequest

START_S = 120.0
"""Added to the time of the request: the start of the process, the imports of the function, and the report."""
_STDERR = 2
_KILL_S = 5.0
_POLL_S = 0.02


def checked(request: CheckRequest) -> CheckReport:
    """Check a function in a process of its own, with its output on stderr, and return the report.

    Blocks for the time of the request and `START_S` at most; leaves no process, also on KeyboardInterrupt. For the
    main thread of a process that starts no other one meanwhile. Raises OSError where no process can start.
    """
    with tempfile.TemporaryFile() as report_file, _family():
        process = subprocess.Popen(
            [sys.executable, "-m", "sparktrain.testing", str(os.getpid()), str(report_file.fileno())],
            stdin=subprocess.PIPE,
            stdout=_STDERR,
            pass_fds=(report_file.fileno(),),
            start_new_session=True,
        )
        try:
            with suppress(BrokenPipeError, subprocess.TimeoutExpired):  # `_without_report` explains it
                process.communicate(msgspec.json.encode(request), request.timeout_s + START_S)
        finally:
            ended = process.poll()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        report_file.seek(0)
        content = report_file.read()
    return from_json(content, CheckReport) if content else _without_report(request, ended)


def _without_report(request: CheckRequest, ended: int | None) -> CheckReport:
    if ended is None:
        problem = (
            f"its process did not answer within {request.timeout_s:g} s, and was killed: it may hang in native code"
        )
    elif ended < 0:
        problem = f"its process was ended by {signal.Signals(-ended).name} before the function returned"
    else:
        problem = f"its process exited with code {ended} before the function returned: does it call os._exit()?"
    return CheckReport(
        function=request.target,
        params=request.params,
        workers=request.workers,
        end=CheckEnd(status=TIMEOUT if ended is None else CRASHED, problem=problem),
        answer=CheckAnswer(metric=request.metric),
    )


@contextmanager
def _family() -> Iterator[None]:
    """End, at the end of the block, each process that started within it, and each that those have left."""
    earlier_children = process_tree.children()
    process_tree.inherit_orphans()
    try:
        yield
    finally:
        clock = SystemClock()
        until = clock.now() + _KILL_S
        while (leftovers := process_tree.children() - earlier_children) and clock.now() < until:
            process_tree.cull(leftovers)
            pause(_POLL_S)
        process_tree.inherit_orphans(False)
