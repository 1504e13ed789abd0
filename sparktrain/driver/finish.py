"""The end of a run: its result for the user."""

from collections import Counter

from msgspec.structs import replace

from sparktrain.base import formatting
from sparktrain.driver.journal_writer import JournalPort
from sparktrain.driver.prepare.attached_run import AttachedRun
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.driver.run_request import RunOutcome
from sparktrain.errors import FunctionError, UserError
from sparktrain.results.run_result import RunEnd
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.history import this_driver
from sparktrain.runs.next_commands import NextCommands
from sparktrain.runs.plan import Plan
from sparktrain.runs.results_json import to_bytes
from sparktrain.runs.sweep_outcome import status_of
from sparktrain.runs.trial_result import model_of, result_of
from sparktrain.state.commands import EndRun
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import Failure
from sparktrain.state.records import AnyRecord, RunEnded
from sparktrain.state.recovery import fold
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import TrialStatus

_ON_PURPOSE = (Ending.STOPPED, Ending.FAILING)
_LISTED = (TrialStatus.PRUNED, TrialStatus.FAILED, TrialStatus.LOST)


def result(definition: RunDefinition, ran: RunOutcome, journal: JournalPort | None) -> SweepResult:
    """What the user gets; written to `results.json`. Blocks on the store. Raises OSError.

    The file follows from the journal alone: an existing file that differs is of an earlier end of the run, or of an
    earlier driver that was suspended before it wrote the file. `journal` is that of the calling driver, if it had to
    take over. Raises DeposedError where it no longer owns the run, or the run was deleted.
    """
    spec = definition.spec
    ending = ran.end.ending
    sweep_result = SweepResult(
        name=spec.name,
        status=status_of(ran.trials, stopped=Ending(ending).interrupted, failing=ending == Ending.FAILING),
        metric=spec.metric,
        mode=spec.mode,
        seconds=ran.seconds,
        wall_seconds=ran.wall_s,
        directory=definition.where,
        trials=ran.trials,
        reason=ran.end.reason or None,
        repeats=spec.repeats,
        folds=spec.folds,
        other_metrics=spec.other_metrics,
        constraints=spec.constraints,
    )
    store = definition.store
    path = definition.layout.results
    content = to_bytes(sweep_result)
    if journal is not None:
        journal.check()  # nor may a run that was deleted meanwhile look as if it were stored
    # Stores have no overwrite. A driver that dies between the two calls leaves no file, which the next driver writes
    # from the journal.
    if not store.put_if_absent(path, content) and store.read(path) != content:
        store.delete(path)
        store.put_if_absent(path, content)
    return sweep_result


def finished(run: AttachedRun) -> SweepResult | None:
    """The result of a run in which nothing is left to do; None for any other. Blocks on the store.

    It completes what the last driver could not: it records the end and writes `results.json`.
    """
    stored_run = run.stored_run
    if stored_run is None:
        return None
    sweep = stored_run.sweep()
    definition = run.definition
    is_same_space = sweep.space == definition.plan.space_digest
    if is_same_space and stored_run.end is not None and _stays(run, stored_run.end, stored_run.plan):
        # The next call of this program for the run is a new one, as it would have been there.
        journal, _ = Journal.claim(definition.store, definition.layout.journal, this_driver())
        return _of_journal(definition, sweep, stored_run.end, journal)
    statuses = {trial.status for trial in sweep.trials.values()}
    again = {TrialStatus.FAILED} if run.retry_failed else set()
    if not all(status.observed for status in statuses) or statuses & again:
        return None
    # The journal alone decides: results.json is deleted by the next driver, may be written late by a stopped one, and
    # is missing after one that died.
    if not sweep.exhausted or not is_same_space:
        return None
    complete = RunEnded(ending=Ending.COMPLETE)
    if stored_run.ended:
        return _of_journal(definition, sweep, complete, None)
    journal, _ = Journal.claim(definition.store, definition.layout.journal, this_driver())
    ended = _ended_now(run, sweep)
    journal.append(ended)
    fold(sweep, ended)
    return _of_journal(definition, sweep, complete, journal)


def _ended_now(run: AttachedRun, sweep: Sweep) -> list[AnyRecord]:
    """The records of a driver that finds nothing left to do, after one that has recorded no end."""
    times = sweep.times
    start = run.driver_started
    start = replace(start, ran_s=times.ran_s + times.unended_s, predecessor_seen=times.last_seen)
    return [start, RunEnded(ending=Ending.COMPLETE, at=start.at)]


def _stays(run: AttachedRun, end: RunEnded, before: Plan) -> bool:
    """The run has ended before its trials, and does not continue: for this driver's predecessor, as at its timeout, or
    with what was asked of it. Not for lost trials, which may have been lost with that driver."""
    # YARN restarts each driver that ends with another code than 0, also one that reached its timeout: without this, the
    # run would get a second one.
    if run.replaces and end.ending in _ON_PURPOSE:
        return True
    goals = ("target", "plateau", "budget_s", "trials")
    asked_goals = {name: getattr(run.definition.spec, name) for name in goals}
    satisfied = Ending(end.ending).satisfied and end.ending != Ending.COMPLETE
    return satisfied and not run.retry_failed and asked_goals == {name: before.spec.get(name) for name in goals}


def _of_journal(definition: RunDefinition, sweep: Sweep, end: RunEnded, journal: JournalPort | None) -> SweepResult:
    """The result of a run that earlier drivers ended, as their journal has it. Blocks on the store."""
    trials = tuple(result_of(trial, definition) for trial in sweep.trials.values())
    ended = EndRun(sweep.run, Ending(end.ending), end.reason)
    return result(definition, RunOutcome(trials, ended, sweep.ran_s, wall_s=sweep.times.wall_s), journal)


def run_end(call: CheckedCall, sweep_result: SweepResult) -> RunEnd:
    """The end of a run of one gang, from its result as a sweep. Blocks on the store."""
    layout = RunLayout(sweep_result.name)
    model = model_of(call.definition.store, layout, next(iter(sweep_result.trials), None))
    return RunEnd(sweep_result, model)


def interrupted(sweep_result: SweepResult, commands: NextCommands) -> str:
    """The message for a run that Ctrl-C or SIGTERM has ended: its results, and how to continue."""
    counts = Counter(trial.status for trial in sweep_result.trials)
    parts = [f"{counts[TrialStatus.SUCCEEDED]} of {formatting.count(len(sweep_result.trials), 'trial')} succeeded"]
    parts += [f"{counts[status]} {status}" for status in _LISTED if counts[status]]
    command = commands.resume(sweep_result.directory or "")
    same_call = f"the same call with name={sweep_result.name!r}"
    how = same_call if command is None else f"{command}, or {same_call}"
    return (
        f"run {sweep_result.name} was interrupted; {sweep_result.directory} has its results so far: "
        f"{', '.join(parts)}; to continue: "
        f"{how}"
    )


def unloadable(function: str, failure: Failure) -> UserError:
    """The error of a function that executors cannot load."""
    trace = f"\n{failure.traceback}" if failure.traceback else ""
    return FunctionError(f"{function} cannot be loaded on executors: {failure.summary}{trace}")
