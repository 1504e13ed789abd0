"""What a sweep would be, before anything starts: its checks, its size, and its time by a former run's trials."""

from collections.abc import Iterator, Sequence

from sparktrain.base import formatting
from sparktrain.base.wings import from_wing
from sparktrain.driver.first_lines import opening
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.errors import SparktrainError
from sparktrain.results.run_result import RunResult
from sparktrain.results.stored_result import load
from sparktrain.runs.history import read_overview
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, runs_in
from sparktrain.state.trial import TrialStatus

_MOST_SIMULATED = 10_000
MOST_LOOKED_AT = 20
"""How many runs of the directory are opened in search of durations, the newest first."""
_ENDED = (TrialStatus.SUCCEEDED, TrialStatus.PRUNED)


def forecast(call: CheckedCall, slots: int | None) -> list[str]:
    """The lines of a dry run on so many slots, where they are known. Blocks on the store, and writes a probe alone.

    Raises as the run would before it starts: RunDirectoryError, ResumeError, SpecError.
    """
    run = attach(call)
    definition = run.definition
    spec = definition.spec
    gang = spec.gang
    trials = run.trials
    count = "as many as its timeout allows" if trials is None else formatting.count(trials, "trial")
    lines = [f"{spec.name}: would be {'resumed' if run.stored_run else 'made'} in {definition.where}"]
    lines.append(f"{spec.name}: space: {definition.space}: {count}")
    lines += opening(run)
    slots_needed = gang.size * (call.slots.concurrent or trials or 1)
    members_text = f"{formatting.count(gang.size, 'member')} for each trial"
    slot_text = "" if slots is None else f"; {slots} here, so {formatting.count(slots // gang.size, 'trial')} at a time"
    lines.append(f"{spec.name}: {members_text}; {formatting.count(slots_needed, 'slot')} at most{slot_text}")
    if slots is not None and slots < gang.size:
        lines.append(f"{spec.name}: a trial needs {gang.size} slots, and there are {slots}: it would be refused")
    limits = [limit for limit in (None if slots is None else slots // gang.size, call.slots.concurrent) if limit]
    concurrent = min(limits, default=None)
    lines += (f"{spec.name}: {line}" for line in _expected(definition, trials, concurrent))
    return [*lines, f"{spec.name}: nothing was started"]


def _expected(definition: RunDefinition, trials: int | None, concurrent: int | None) -> Iterator[str]:
    """How long it takes by the trials of the newest former run of the same function, with durations in turn."""
    durations, name = _durations(definition)
    if not durations:
        yield "expected time: unknown, no run of this function is in the directory; run one trial first: --trials 1"
        return
    work = sum(durations) / len(durations) * (trials or 1)
    basis = f"by {formatting.count(len(durations), 'trial')} of {name}, {formatting.duration(work)} in all"
    if trials is None or trials > _MOST_SIMULATED:
        yield f"expected time: {formatting.duration(sum(durations) / len(durations))} for each trial, {basis}"
        return
    if concurrent is None:
        yield f"expected time: {basis}, on n slots for trials an n-th of that; --max-concurrent-trials n shows it"
        return
    curve = from_wing("LearningCurve")
    curves = [curve((), durations[index % len(durations)]) for index in range(trials)]
    metric = definition.spec.metric or ""
    seconds = from_wing("VirtualRun")(curves, concurrent, metric, definition.spec.mode, ()).run().seconds
    at_a_time = f"{formatting.count(concurrent, 'trial')} at a time"
    stopper_note = ", less with the stopper" if definition.spec.stopper else ""
    yield f"expected time: {formatting.duration(seconds)} with {at_a_time}, {basis}{stopper_note}"


def _durations(definition: RunDefinition) -> tuple[Sequence[float], str]:
    """Seconds of each trial that ended, in the newest run of the same function beside this one, and its name."""
    try:
        places, alone = runs_in(definition.store.where(), LOOK_TIMEOUT_S)
    except SparktrainError:
        return (), ""
    runs = [
        (run, started)
        for run in ([] if alone else places)
        if (started := _started(run, definition.plan.function)) is not None
    ]
    for place, _ in sorted(runs, key=lambda pair: pair[1], reverse=True)[:MOST_LOOKED_AT]:
        result = load(place.where)
        ended = [trial.seconds for trial in result.trials if trial.status in _ENDED and trial.seconds > 0]
        if ended and not isinstance(result, RunResult):
            return ended, result.name
    return (), ""


def _started(place: RunLocation, function: str) -> float | None:
    """When a sweep of this function started; None for any other run."""
    try:
        overview = read_overview(place.store, place.layout)
    except (SparktrainError, FileNotFoundError):
        return None
    is_comparable = overview.get("function") == function and overview.get("kind") == "sweep"
    return float(overview.get("started") or 0.0) if is_comparable else None
