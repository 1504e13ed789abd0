"""A member: one forked child. It waits, trains once, reports the outcome to its agent, and ends."""

import inspect
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NoReturn

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.spans import span
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import Role
from sparktrain.config.uses import runs_everywhere
from sparktrain.errors import FormError, ProtocolError
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol import sent_script
from sparktrain.protocol.frames import UNREACHABLE_STATUS, BlockingPipe
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.training import attempt, current_context, failure, gang_join, process_setup, script_loading
from sparktrain.training.agent_pipe import AgentWire
from sparktrain.training.context import TrainContext
from sparktrain.training.frameworks.contract import RefusedUseError
from sparktrain.training.frameworks.imported import from_framework, imported, joins
from sparktrain.training.notices import notice
from sparktrain.training.source_homes import find

_BROKEN_STATUS = 70  # EX_SOFTWARE: this package's own code in the member has raised
_PREPARE = joins("prepare")
_CONNECT = joins("connect")
_PROVIDE = joins("provide")
"""The functions of `Framework.joins`, which the zygote imports for all of its members."""


def run_member(pipe: BlockingPipe[m.ToMember], on_assigned: Callable[[], None]) -> NoReturn:
    """Run one member from its assignment to the end of its process. Only the main thread of a forked child calls it.

    It calls `on_assigned` when the assignment has come, before any code of the user runs.
    """
    try:
        with span("rehearsal"):
            rehearse()
        assignment = pipe.receive()
        if assignment is None:
            os._exit(0)  # the agent closed its end: this member is not needed
        assert isinstance(assignment, m.Assignment), assignment
        on_assigned()
        wire = AgentWire(pipe, SystemClock(), judged=assignment.call.judged)
        outcome = _outcome(assignment, wire, SystemClock())
        _print(outcome.failure)
        process_setup.flush()
        with span("result"):
            is_sent = _sent(wire, outcome)
        if not is_sent:
            os._exit(UNREACHABLE_STATUS)
        process_setup.leave()
    except BaseException:
        with suppress(OSError):  # stderr may be closed
            traceback.print_exc()
    finally:
        os._exit(_BROKEN_STATUS)


def rehearse() -> None:
    """Do in a waiting member what costs an assigned one most, where it has no effect. Raises nothing.

    A forked process copies each page of its parent when it first writes to it, and Python writes to what it uses: some
    microseconds for each of hundreds.
    """
    with suppress(Exception):  # it happens again after the assignment, and is reported
        process_setup.seed(0)
        find((os.devnull,))
        find_spec("sparktrain_rehearsal")
        inspect.signature(rehearse)


def _outcome(assignment: m.Assignment, wire: AgentWire, clock: Clock) -> Outcome:
    """Set up the process, load the function, join the gang, and train."""
    call = assignment.call
    host = socket.gethostname()
    homes = find(assignment.code.sys_path)
    try:
        with span("set up"):
            process_setup.enter(assignment)
    except OSError as error:
        problem = f"no member can be set up on executor host {host}: {error}"
        return Outcome(0.0, failure=Failure(FailureKind.LOST, problem))
    try:
        for prepare in _PREPARE:
            prepare(call.gang, homes)
        if call.gang.size == 1:  # a gang first decides which members see a GPU
            process_setup.limit_gpus(assignment)
        # Load before the rendezvous: otherwise the imports of one member would run against the timeouts of the ring.
        with span("load"):
            function = _load(assignment)
        with span("join"):
            gang = gang_join.form(assignment, wire, function, homes)
        assignment = gang_join.with_sent_files(assignment, gang)
        for connect in _CONNECT:
            connect(gang, call.gang.backend)
        process_setup.seed(call.seed)
    except (FormError, RefusedUseError) as error:
        return Outcome(0.0, failure=failure.of_exception(error))
    except BaseException as error:
        return Outcome(0.0, failure=failure.of_loading(error, host, homes))
    context = TrainContext(assignment, wire, clock, gang)
    current_context.enter(context)
    for provide in _PROVIDE:
        provide(context)
    entered = clock.now()
    is_ps_backend = call.gang.backend is Backend.PARAMETER_SERVER
    by_itself = gang.formation.has_ps and (is_ps_backend or runs_everywhere(function))
    if by_itself and not is_ps_backend:
        context.prepare_sessions()
    gang.on_mismatch(lambda mismatch: _end_mismatched(mismatch, clock.now() - entered, wire))
    frameworks = tuple(framework.module for framework in imported())
    trains = by_itself and gang.formation.role is Role.WORKER
    wire.send(m.Entered(os.getpid(), trains=trains, frameworks=frameworks))
    try:
        if is_ps_backend and gang.formation.role is Role.PS:
            from_framework("serve_shard")(gang.formation, call.gang.servers, gang.release_port)
        if not by_itself and gang.formation.is_server:
            from_framework("serve_cluster")(gang.formation, gang.release_port)
    except FormError as error:
        return Outcome(0.0, failure=failure.of_exception(error))
    return attempt.outcome_of(function, context, gang, call.metric, homes, clock)


def _load(assignment: m.Assignment) -> Callable[..., Any]:
    """The training function, in the names of its script. Raises what the user's code raises."""
    code = assignment.code
    if not code.by_reference:
        os.environ[sent_script.FILE_KEY] = code.path
    sent_script.enter(not code.by_reference, notice)
    return script_loading.load(code.path, code.by_reference)


def _end_mismatched(mismatch: str, seconds: float, wire: AgentWire) -> NoReturn:
    """End a member that waits in a collective which the others do not call. Not for the training thread."""
    training = sys._current_frames()[threading.main_thread().ident or 0]
    ended = failure.of_mismatch(mismatch, failure.where(training, attempt.call.__code__))
    print(f"[sparktrain] {mismatch}", file=sys.stderr)
    process_setup.flush()
    os._exit(0 if _sent(wire, Outcome(seconds, failure=ended)) else UNREACHABLE_STATUS)


def _print(failed: Failure | None) -> None:
    """Print the failure as the end of the log, where readers look first."""
    if failed is None:
        return
    ending = f"[sparktrain] {failed.summary}\n" if failed.summary.startswith(failure.MOVED) else failed.ending
    with suppress(Exception):  # the function may have closed stderr
        sys.stdout.flush()
        print(ending, end="", file=sys.__stderr__, flush=True)


def _sent(wire: AgentWire, outcome: Outcome) -> bool:
    """Send `outcome` to the agent, or that it is too large; False where the agent cannot be reached."""
    try:
        wire.send(m.FunctionEnded(outcome, catches_stops=callable(signal.getsignal(signal.SIGTERM))))
    except ProtocolError as error:
        too_large = Failure(FailureKind.RESULT, f"the result is too large: {error}")
        wire.send(m.FunctionEnded(Outcome(outcome.seconds, failure=too_large)))
    except OSError as error:
        with suppress(OSError):  # the function may have closed stderr too
            print(f"[sparktrain] the outcome cannot be sent to the agent: {error}", file=sys.stderr)
        return False
    return True
