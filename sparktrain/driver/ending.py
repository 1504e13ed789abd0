"""From the end of a run to what the user gets."""

from sparktrain.driver.compose import Composed
from sparktrain.driver.report import to_bytes
from sparktrain.driver.results import SweepResult, status_of
from sparktrain.driver.run import RunEnd, model_of
from sparktrain.driver.work import Ran
from sparktrain.errors import FunctionError, UserError
from sparktrain.state.outcome import Failure
from sparktrain.state.sweep import Ending


def result(composed: Composed, ran: Ran) -> SweepResult:
    """What the user gets; written to `results.json`. Blocks on the store."""
    spec, stopped = composed.spec, ran.end.ending == Ending.STOPPED
    made = SweepResult(
        name=spec.name,
        status=status_of(ran.trials, stopped=stopped),
        metric=spec.metric,
        mode=spec.mode,
        seconds=ran.seconds,
        directory=composed.where,
        trials=ran.trials,
        reason=ran.end.reason or None,
    )
    composed.store.put_if_absent(composed.layout.results, to_bytes(made))
    return made


def run_end(composed: Composed, made: SweepResult) -> RunEnd:
    """The end of a run of one gang, from its result as a sweep. Blocks on the store."""
    return RunEnd(made, model_of(composed.store, composed.layout, next(iter(made.trials), None)))


def unloadable(composed: Composed, failure: Failure) -> UserError:
    """The error of a function that executors cannot load."""
    trace = f"\n{failure.traceback}" if failure.traceback else ""
    return FunctionError(f"{composed.plan.function} cannot be loaded on executors: {failure.summary}{trace}")
