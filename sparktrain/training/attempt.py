"""Calls a training function once, from arguments to outcome: the same in a member and in a user's process."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparktrain.base.clock import Clock
from sparktrain.base.spans import span
from sparktrain.state.outcome import EndedEarly, Failure, FailureKind, Outcome
from sparktrain.training import failure
from sparktrain.training.collectives.ring_errors import MovedAway
from sparktrain.training.context import TrainContext
from sparktrain.training.export import description_digest
from sparktrain.training.gang_join import JoinedGang
from sparktrain.training.metrics import FunctionResult, read_result
from sparktrain.training.notices import issued_notices, notice
from sparktrain.training.source_homes import Homes


def call(function: Callable[..., Any], context: TrainContext) -> Any:
    """What `function` returns for the parameters of `context`, and for `ctx` if it names it. Raises what it raises."""
    try:
        wants_context = "ctx" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        wants_context = False
    injected = {"ctx": context} if wants_context else {}
    return function(**{**context.params, **injected})


def conclude(returned: Any, context: TrainContext, gang: JoinedGang, metric: str | None) -> FunctionResult | Failure:
    """Check what the function returned, wait for what it saved last, and leave the gang; the chief needs `metric`."""
    ended = read_result(returned, metric if context.member_rank == 0 else None)
    if isinstance(ended, FunctionResult) and ended.notice and context.member_rank == 0:
        notice(ended.notice)
    context.finish(returned=True)
    gang.leave()
    return ended


def outcome_of(
    function: Callable[..., Any],
    context: TrainContext,
    gang: JoinedGang,
    metric: str | None,
    homes: Homes,
    clock: Clock,
) -> Outcome:
    """Call `function` once; an exception that it raises becomes the outcome's failure. Blocks until it returns.

    A child process that the function forked, and that returns from it, ends in here.
    """
    pid = os.getpid()
    started = clock.now()
    ended: FunctionResult | Failure
    returned = False
    pruned = None
    try:
        with span("user code"):
            value = call(function, context)
        returned = True
        pruned = value if isinstance(value, EndedEarly) else None
        ended = conclude(*((value, context, gang, metric) if pruned is None else (None, context, gang, None)))
    except MovedAway as moved:
        context.finish()
        ended = failure.of_move(moved)
    # SystemExit and KeyboardInterrupt too: the agent waits for an outcome, whatever ends the function.
    except BaseException as error:
        ended = failure.of_exception(error, gang.broke, homes)
        if ended.kind is FailureKind.RING and (mismatch := gang.mismatch()) is not None:
            ended = failure.of_mismatch(mismatch, "" if returned else ended.traceback)
    if os.getpid() != pid:
        os._exit(0)  # only the process that was given the context has an outcome
    seconds = clock.now() - started
    if isinstance(ended, Failure):
        return Outcome(seconds, failure=ended, notices=issued_notices())
    return Outcome(
        seconds,
        metrics=ended.metrics,
        notices=issued_notices(),
        pruned=pruned,
        extra=ended.extra,
        exported=description_digest(Path(context.log_dir).parent),
    )
