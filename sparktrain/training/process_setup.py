"""Sets up a forked process before it trains, and ends it: log, directory, path, devices, seeds, exit."""

import atexit
import faulthandler
import os
import random
import re
import signal
import sys
import threading
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from sparktrain.base import process_tree
from sparktrain.base.threads import spawn
from sparktrain.config.gang_spec import Role
from sparktrain.protocol.pipe_messages import Assignment
from sparktrain.rundir.newest_step import newest_step
from sparktrain.state.topology import Formation
from sparktrain.training import no_spark
from sparktrain.training.frameworks.imported import ALL, imported

EXIT_TIMEOUT_S = 5.0
"""How long a member's threads and exit handlers have together before the process ends."""
THREADS_TIMEOUT_S = 2.0
"""The part of it for threads that the function left running."""

_STDERR = 2
_GPU = re.compile(r"nvidia\d+")


def enter(assignment: Assignment) -> None:
    """Set up this process for the member; call it once, before any code of the user. Raises OSError."""
    process_tree.name_process(f"trial {assignment.member.trial}")
    _redirect(assignment.log_path)
    newest_step.keep_in(Path(assignment.log_path).parent)
    faulthandler.enable(_STDERR)
    # A stopped trial prints its stacks to its log, and then dies of the signal.
    faulthandler.register(signal.SIGTERM, _STDERR, all_threads=True, chain=True)
    os.makedirs(assignment.log_dir, exist_ok=True)
    os.chdir(assignment.work_dir)
    sys.argv = ["sparktrain"]
    sys.path[:0] = assignment.code.sys_path
    # PYTHONPATH and LD_LIBRARY_PATH come too late here: a process reads them when it starts, and this one was forked.
    os.environ.update(assignment.call.env)
    no_spark.refuse()
    if assignment.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(assignment.gpus)


def choose_devices(assignment: Assignment, formation: Formation) -> None:
    """Choose the devices that a member of a gang may see. Call it once, before TensorFlow is initialised.

    Raises EnvironmentMismatchError, as `limit_gpus`.
    """
    if formation.mine.role in (Role.PS, Role.EVALUATOR):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # another member trains on the GPU and needs its memory
        return
    if formation.size > 1 and not assignment.gpus and "CUDA_VISIBLE_DEVICES" not in os.environ:
        devices = [name for name in os.listdir("/dev") if _GPU.fullmatch(name)]
        if devices:  # Spark assigns none: the members of one host share them
            os.environ["CUDA_VISIBLE_DEVICES"] = str(formation.local_rank % len(devices))
    limit_gpus(assignment)


def limit_gpus(assignment: Assignment) -> None:
    """Limit the memory of GPUs that frameworks use. Call it before code of the user, with the devices chosen.

    Raises EnvironmentMismatchError where a framework that is imported sees no GPU.
    """
    if assignment.call.gpu_mib:
        total_mib = min(assignment.gpu_totals, default=0)
        # Also those that are not imported: the function may import one, and then its first operation comes too soon.
        for framework in ALL:
            framework.limit_gpu_memory(assignment.call.gpu_mib, total_mib)


def seed(value: int) -> None:
    """Seed the random generators of Python, and of numpy and each framework where they are imported."""
    bounded = value % 2**32  # the range of numpy, and of frameworks
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(bounded)
    for framework in imported():
        framework.seed(bounded)


def flush() -> None:
    """Flush everything printed so far, by Python and by native code."""
    for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
        with suppress(Exception):
            if stream is not None:
                stream.flush()
    process_tree.flush_native()


def leave() -> NoReturn:
    """End this process with status 0; the user's threads and exit handlers get a few seconds."""
    # A timer of C ends the process: exit handlers of the user may hang while they hold the interpreter.
    faulthandler.dump_traceback_later(EXIT_TIMEOUT_S, exit=True, file=_STDERR)
    with suppress(Exception):
        _join_threads()
    with suppress(BaseException):
        atexit._run_exitfuncs()
    flush()
    os._exit(0)


def _redirect(log_path: str) -> None:
    """Redirect stdout and stderr, of Python and of native code, to one file."""
    fd = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _join_threads() -> None:
    """Join threads as at the end of any program, but with a timeout, and before the exit handlers."""
    if threading.active_count() == 1:
        return
    # Private, but the interpreter calls it at exit, and multiprocessing in its children.
    shutdown = threading._shutdown  # type: ignore[attr-defined]
    joining = spawn(shutdown, "sparktrain-exit")
    joining.join(THREADS_TIMEOUT_S)
    if joining.is_alive():
        names = [peer.name for peer in threading.enumerate() if not peer.daemon and peer is not threading.main_thread()]
        print(f"[sparktrain] ended with threads that the function left running: {', '.join(names)}", file=sys.stderr)
