"""Repairs a corrupt run directory so that it can be resumed, and keeps all that can be kept."""

from collections.abc import Iterator

from msgspec import UNSET

from sparktrain.base import formatting
from sparktrain.base.clock import Clock
from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.rundir.journal import salvage
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.lost_records import lost_records, restored
from sparktrain.runs.plan import overview, write_plan
from sparktrain.runs.results_json import to_bytes
from sparktrain.runs.run_evidence import check_direct, check_run, has_traces
from sparktrain.runs.upkeep.fsck import Examined, RunFinding, Severity
from sparktrain.runs.view import RunState
from sparktrain.runs.watcher import Observer, this_process
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.space import ListedSpace, Space
from sparktrain.search.space_json import from_document
from sparktrain.state.records import CheckpointsDropped

PURPOSE = "sparktrain fsck --repair"


def repair(place: RunLocation, examined: Examined, clock: Clock) -> list[str]:
    """Repair what was found, as far as possible; returns one line for each change. Blocks on the store.

    Deletes only `results.json`, which it rewrites or renames, and unreadable code, which the call that started the run
    stores once more. Raises RunDirectoryError when a driver owns the run, and as the functions of the journal.
    """
    if examined.view is not None and examined.view.state is RunState.RUNNING:
        raise RunDirectoryError(
            f"run directory {place.where} is in use by {examined.view.driver.identity}: wait for its end, or stop it"
        )
    _check_evidence(place)
    changes = [*_journal(place, examined, clock), *_records(place, examined, clock)]
    if any(_findings_about(examined, subject) for subject in ("checkpoint", "code", "results.json", "run.json")):
        writer, _ = Journal.claim(place.store, place.layout.journal, this_process(clock, PURPOSE))
        changes += _checkpoints(writer, examined)
        changes += _overview(place, writer, examined)
        changes += _files(place, writer, examined, clock)
    return changes


def _check_evidence(place: RunLocation) -> None:
    """Raises RunDirectoryError where nothing shows that the directory is that of a run: then nothing may be written."""
    check_direct(place)
    try:
        check_run(place)
    except (FileNotFoundError, RunDirectoryError) as error:
        if not has_traces(place):
            raise RunDirectoryError(
                f"{place.where} is no run directory: it has no run.json of a run, and neither a journal nor a plan; "
                "correct the path"
            ) from error


def _findings_about(examined: Examined, subject: str) -> list[RunFinding]:
    return [issue for issue in examined.findings if issue.subject == subject and issue.severity is not Severity.NOTE]


def _journal(place: RunLocation, examined: Examined, clock: Clock) -> Iterator[str]:
    if _findings_about(examined, "journal"):
        report = salvage.repair(place.store, place.layout, this_process(clock, PURPOSE))
        if not report.is_intact:
            yield f"the journal was rewritten from the {report.record_count} records that could be kept"


def _records(place: RunLocation, examined: Examined, clock: Clock) -> Iterator[str]:
    """Restore what the journal has lost and `results.json` has, so that no generation is used twice."""
    store = place.store
    layout = place.layout
    if not _findings_about(examined, "journal"):
        return
    writer, opened = Journal.claim(store, layout.journal, this_process(clock, PURPOSE))
    lost = lost_records(store, layout, opened.records, lambda: opened.records)
    if not lost:
        return
    # Generations too: a gang that used a number once more would meet the files of the gang that had it.
    writer.append(restored(lost))
    back = [result.id for result in lost.results if result.id not in lost.trials]
    if back:
        yield f"the journal has {formatting.count(len(back), 'result')} back from {store.where(layout.results)}"
    if lost.trials and store.exists(layout.results):
        aside = layout.old_results(writer.term)
        store.put_if_absent(aside, store.read(layout.results))
        writer.check()
        store.delete(layout.results)
        yield f"results of trials that cannot be kept are in {store.where(aside)} alone"


def _checkpoints(writer: Journal, examined: Examined) -> Iterator[str]:
    """Take the run over even where no checkpoint is corrupt: a driver that starts now must not read half of it."""
    dropped = []
    for finding in _findings_about(examined, "checkpoint"):
        if finding.trial is not None and finding.checkpoint is not None:
            manifests = (finding.checkpoint.manifest,)
            dropped.append(CheckpointsDropped(trial=finding.trial, manifests=manifests, reason=finding.problem))
            yield f"the checkpoint of step {finding.checkpoint.step} of trial {finding.trial} no longer counts"
    if dropped:
        writer.append(dropped)
    else:
        writer.settle()


def _overview(place: RunLocation, writer: Journal, examined: Examined) -> Iterator[str]:
    store = place.store
    path = place.layout.spec
    if _findings_about(examined, "run.json") and examined.plan is not None:
        plan, spec = examined.plan, examined.plan.sweep_spec()
        try:
            space: Space | None = from_document(plan.space)
        except SpecError:
            space = None  # it was too large to store
        trials = None if plan.sampler is UNSET else spec.trials
        if isinstance(space, ListedSpace) and plan.sampler is UNSET:
            trials = SpaceSampler(space, spec.trials).total
        content = overview(
            plan, str(space or plan.space["values"]), trials and trials * spec.replication.size, examined.started
        )
        writer.check()
        write_plan(store, place.layout, plan)  # its digest is another one after the directory was renamed
        store.delete(path)
        store.put_if_absent(path, content)
        yield f"{store.where(path)} was rewritten"


def _files(place: RunLocation, writer: Journal, examined: Examined, clock: Clock) -> Iterator[str]:
    store = place.store
    layout = place.layout
    for finding in _findings_about(examined, "code"):
        store.delete(finding.path)
        yield "code was deleted: resume by the call that started the run, which stores it once more"
    if _findings_about(examined, "results.json"):
        view = Observer(place, clock).look()
        writer.check()
        store.delete(layout.results)
        if view.state is RunState.ENDED:
            store.put_if_absent(layout.results, to_bytes(view.as_outcome()))
            yield f"{store.where(layout.results)} was rewritten"
