"""The first lines of a run: what was chosen for the user and why, and what follows for existing trials."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from sparktrain.base import formatting
from sparktrain.config.metric_names import first_line
from sparktrain.config.sampler_names import shown_name
from sparktrain.driver.prepare.attached_run import AttachedRun
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.history import StoredRun
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.search.sampler import AnsweringSampler
from sparktrain.state.trial import TrialStatus

RETRY = "retry_failed=True (--retry-failed)"


def opening(run: AttachedRun) -> Iterator[str]:
    """The lines, which stay above the progress."""
    call = run.call
    plan = run.definition.plan
    spec = run.definition.spec
    if run.stored_run is not None:
        yield f"{spec.name}: resumes; {_stored_results(run, run.stored_run)}"
        yield from (f"{spec.name}: {line}" for line in _changed(run, run.stored_run))
    yield from (f"{spec.name}: {note}" for note in call.notes)
    if call.choice is not None:
        yield f"{spec.name}: {call.choice.line}"
    if plan.sampler is not msgspec.UNSET:
        yield f"{spec.name}: {_proposes(run.definition, plan.sampler)}"
    if spec.replication.size > 1:
        yield f"{spec.name}: {_replicated(run)}"
    if spec.metric is not None:
        yield f"{spec.name}: {first_line(spec.metric, spec.mode)}"
    yield from (f"{spec.name}: {first_line(objective.metric, objective.mode)}" for objective in spec.other_metrics)
    if spec.constraints:
        yield f"{spec.name}: the best trial keeps {' and '.join(map(str, spec.constraints))}"
    if plan.warm is not msgspec.UNSET:
        for line in plan.warm.lines:
            yield f"{spec.name}: {line}"
    for rule in spec.stopper:
        yield f"{spec.name}: stopper {rule.line}"


def _changed(run: AttachedRun, stored_run: StoredRun) -> Iterator[str]:
    """What proposes other trials than under the drivers before."""
    old_plan = stored_run.plan
    now = run.definition.plan
    if old_plan.sampler != now.sampler:
        names = [shown_name("grid" if plan.sampler is msgspec.UNSET else plan.sampler) for plan in (old_plan, now)]
        yield f"another sampler: {names[1]} proposes what is left to run, and knows the results of {names[0]}"
    if not run.call.resume_rules.extends and old_plan.space.get("values") != now.space.get("values"):
        yield "another space, as allow_changed allows: trials with a result keep it, the others are of the new space"


def _proposes(definition: RunDefinition, sampler: str) -> str:
    """What proposes the parameters: a sampler by name, an object of the user, or a study."""
    if isinstance(definition.sampler, AnsweringSampler):
        return definition.sampler.line
    return f"{shown_name(sampler)} proposes {definition.space}"


def nothing_run(result: SweepResult) -> str:
    """The line of a run in which nothing was left to do."""
    count = Counter(trial.status for trial in result.trials)
    state = "stopped before" if result.status is SweepStatus.STOPPED else "complete"
    parts = [*_succeeded(count), *([_stay_failed(failed)] if (failed := count[TrialStatus.FAILED]) else [])]
    return "; ".join([f"{result.name}: {state}: nothing was run", *parts])


def _stored_results(run: AttachedRun, stored_run: StoredRun) -> str:
    count = Counter(trial.status for trial in stored_run.sweep().trials.values())
    parts = _succeeded(count)
    if failed := count[TrialStatus.FAILED]:
        again = _count(failed, "that failed is retried", "that failed are retried")
        parts.append(again if run.retry_failed else _stay_failed(failed))
    if total := run.trials:
        kept_count = count[TrialStatus.SUCCEEDED] + count[TrialStatus.PRUNED]
        kept_count += 0 if run.retry_failed else count[TrialStatus.FAILED]
        parts.append(f"{max(0, total - kept_count)} to run in all")
    return "; ".join(parts)


def _replicated(run: AttachedRun) -> str:
    """How many trials the repeats and folds make, and what becomes of them."""
    spec = run.definition.spec
    size = formatting.count(spec.replication.size, "trial")
    number = f"{size} of each set of parameters" if run.cases is None else spec.replication.counted(run.cases)
    races = spec.racing and spec.metric is not None
    return f"{number}{'; those of a set that cannot win are not run (racing)' if races else ''}"


def _succeeded(count: Counter[TrialStatus]) -> list[str]:
    number = count[TrialStatus.SUCCEEDED]
    pruned = count[TrialStatus.PRUNED]
    parts = [_count(number, "keeps its result", "keep their results")] if number else []
    return [*parts, *([_count(pruned, "stays pruned", "stay pruned")] if pruned else [])]


def _stay_failed(failed: int) -> str:
    return f"{_count(failed, 'stays failed', 'stay failed')}: {RETRY} retries {'it' if failed == 1 else 'them'}"


def _count(number: int, one: str, several: str) -> str:
    return f"{formatting.count(number, 'trial')} {one if number == 1 else several}"
