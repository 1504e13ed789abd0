"""Examines everything in a run directory that a driver would read: what is corrupt, and what a resume would do."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sparktrain.base import formatting
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import TrialId
from sparktrain.errors import CheckpointError, RunDirectoryError, SpecError
from sparktrain.rundir import checkpoints
from sparktrain.rundir.journal import salvage, writer
from sparktrain.rundir.journal.salvage import SalvageReport
from sparktrain.rundir.metric_log import block_paths, check_part, superseded_paths
from sparktrain.runs import plan as plans
from sparktrain.runs.dataset_files import corrupt_files
from sparktrain.runs.heartbeat_watch import HeartbeatWatch
from sparktrain.runs.history import answers, read_overview
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.lost_records import lost_records
from sparktrain.runs.plan import Plan
from sparktrain.runs.results_json import from_json
from sparktrain.runs.view import RunData, RunDriver, RunState, RunView, TrialView, view_of
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.records import AnyRecord, DriverStarted
from sparktrain.state.recovery import folded

VERSION = 1
_SHOWN_TRIALS = 12
_SHOWN_NOTES = 6

OnBytes = Callable[[int, int], None]
"""Gets how many bytes of checkpoints were read, and how many there are, as far as is known."""


class Severity(StrEnum):
    """How bad a finding is. The value is the word in JSON."""

    NOTE = "note"  # unusual, and no harm
    CORRUPT = "corrupt"  # something is lost, but the run can be resumed
    BLOCKING = "blocking"  # the run can be resumed only after a repair, or after a copy was put back


@dataclass(frozen=True)
class RunFinding:
    """One problem in a run directory."""

    severity: Severity
    subject: str
    """`run.json`, `journal`, `plan`, `code`, `checkpoint`, `data`, `reports` or `results.json`."""
    problem: str
    trial: TrialId | None = None
    checkpoint: Checkpoint | None = None
    path: str = ""
    """The path of the file in the store; empty where the problem is in no single file."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found in a run directory."""

    name: str
    directory: str
    fast: bool
    findings: tuple[RunFinding, ...]
    outlook: tuple[str, ...]
    """What a resume would do, one line each."""
    checkpoints: int
    """How many checkpoints were examined."""
    size: int
    """Bytes of their files."""
    records: int
    """Records of the journal that can be read or kept."""
    started: float | None
    """When the first driver started, as far as is known."""
    plan: Plan | None = None
    """The plan that a resume would follow."""
    view: RunView | None = None
    """The run, as far as it can be read."""

    @property
    def code(self) -> int:
        """The exit code."""
        severities = {finding.severity for finding in self.findings}
        return 8 if Severity.BLOCKING in severities else 7 if Severity.CORRUPT in severities else 0

    def lines(self) -> list[str]:
        """For people."""
        checked = "sizes compared" if self.fast else "every byte verified"
        counts = [formatting.count(self.records, "record"), formatting.count(self.checkpoints, "checkpoint")]
        verdict = {0: "clean", 7: "corrupt, can be resumed", 8: "corrupt, cannot be resumed as it is"}[self.code]
        head = (
            f"{formatting.plain(self.name)}: {verdict}. {', '.join(counts)} ({formatting.size(self.size)}, {checked})"
        )
        findings = [f"{issue.severity}: {issue.subject}: {formatting.plain(issue.problem)}" for issue in self.findings]
        bad = sum(finding.severity is not Severity.NOTE for finding in self.findings)
        tail = len(findings) - bad - _SHOWN_NOTES
        findings = findings[: bad + _SHOWN_NOTES] + ([f"and {formatting.count(tail, 'more note')}"] if tail > 0 else [])
        return [head, *findings, *(f"resume: {formatting.plain(line)}" for line in self.outlook)]

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "version": VERSION,
            "name": self.name,
            "directory": self.directory,
            "code": self.code,
            "fast": self.fast,
            "records": self.records,
            "checkpoints": self.checkpoints,
            "size": self.size,
            "findings": [
                {
                    "severity": str(finding.severity),
                    "subject": finding.subject,
                    "problem": finding.problem,
                    "trial": finding.trial,
                    "step": finding.checkpoint.step if finding.checkpoint is not None else None,
                }
                for finding in self.findings
            ],
            "resume": list(self.outlook),
        }


@dataclass
class _Checked:
    """The checkpoints that were examined so far."""

    count: int = 0
    size: int = 0
    corrupt: dict[str, str] = field(default_factory=dict)
    """The manifests of checkpoints that cannot be read, with the reasons."""


class RunExaminer:
    """Examines one run. Writes nothing. Blocks on the store."""

    def __init__(self, place: RunLocation, fast: bool, on_bytes: OnBytes) -> None:
        """`fast` compares only the sizes of the files of checkpoints."""
        self._place = place
        self._fast = fast
        self._on_bytes = on_bytes

    def examine(self) -> Examined:
        """Examine the run. Raises RunDirectoryError when a newer sparktrain wrote it, OSError from the store."""
        store = self._place.store
        layout = self._place.layout
        report, records = salvage.examine(store, layout)
        findings = [*_of_journal(report), *self._of_records(report, records)]
        overview = self._overview(findings)
        plan = self._plan(findings, overview, records)
        view = None if plan is None else self._view(plan, overview, records)
        checked = _Checked()
        if view is not None:
            findings += self._of_checkpoints(view, checked)
            findings += self._of_datasets(view)
            findings += self._of_results(view)
            findings += self._of_reports(view)
        return Examined(
            name=layout.path,
            directory=self._place.where,
            fast=self._fast,
            findings=tuple(sorted(findings, key=lambda finding: list(Severity).index(finding.severity), reverse=True)),
            outlook=() if view is None else tuple(_outlook(view, checked.corrupt, report)),
            checkpoints=checked.count,
            size=checked.size,
            records=report.record_count,
            started=next((record.at for record in records if isinstance(record, DriverStarted)), None),
            plan=plan,
            view=view,
        )

    def _of_records(self, report: SalvageReport, records: tuple[AnyRecord, ...]) -> Iterator[RunFinding]:
        """The records that a readable journal has lost for certain."""
        store = self._place.store
        layout = self._place.layout
        lost = lost_records(store, layout, records, lambda: salvage.examine(store, layout)[1])
        if lost and report.is_intact:
            step = "--repair takes the results from there" if lost.results else "--repair starts a new generation"
            yield RunFinding(Severity.BLOCKING, "journal", f"{lost}; {step}")
        for trial in lost.trials if report.is_intact else ():
            where = store.where(layout.trial(trial))
            yield RunFinding(Severity.BLOCKING, "journal", f"trial {trial} cannot be kept: move {where} away", trial)

    def _overview(self, findings: list[RunFinding]) -> dict[str, Any]:
        try:
            return read_overview(self._place.store, self._place.layout)
        except FileNotFoundError:
            problem = f"{self._place.store.where(self._place.layout.spec)} is missing"
        except RunDirectoryError as error:
            problem = str(error)
        findings.append(RunFinding(Severity.BLOCKING, "run.json", f"{problem}; --repair rewrites it from the plan"))
        return {}

    def _plan(
        self, findings: list[RunFinding], overview: dict[str, Any], records: tuple[AnyRecord, ...]
    ) -> Plan | None:
        """The plan that a resume would follow; examines the plans and the code of all drivers."""
        store = self._place.store
        layout = self._place.layout
        started_plans = [record.plan for record in records if isinstance(record, DriverStarted)]
        newest = started_plans[-1] if started_plans else str(overview.get("plan", ""))
        followed = None
        for digest in dict.fromkeys(plan_digest for plan_digest in (newest, *started_plans) if plan_digest):
            severity = Severity.BLOCKING if digest == newest else Severity.CORRUPT
            try:
                plan = plans.read(store, layout, digest)
            except RunDirectoryError as error:
                findings.append(RunFinding(severity, "plan", str(error)))
                continue
            followed = plan if digest == newest else followed
            try:
                plans.read_code(store, layout, plan.code)
            except RunDirectoryError as error:
                findings.append(RunFinding(severity, "code", str(error), path=layout.code(plan.code)))
        return followed

    def _view(self, plan: Plan, overview: dict[str, Any], records: tuple[AnyRecord, ...]) -> RunView:
        store = self._place.store
        layout = self._place.layout
        driver = writer.newest_driver(store, layout.journal)
        lives = driver is not None and (answers(driver) or HeartbeatWatch(store, layout, SystemClock()).shows(driver))
        run_data = RunData(
            plan=plan,
            overview=overview,
            store=store,
            layout=layout,
            records=records,
            driver=RunDriver(identity=driver, alive=lives),
        )
        return view_of(run_data)

    def _of_datasets(self, view: RunView) -> Iterator[RunFinding]:
        """The files of datasets that a trial could not read; they block a resume that has trials left."""
        is_incomplete = len(view.trials) != view.total or any(not trial.result.status.observed for trial in view.trials)
        for path, problem in corrupt_files(self._place.store, self._place.layout, fast=self._fast):
            yield RunFinding(Severity.BLOCKING if is_incomplete else Severity.CORRUPT, "data", problem, path=path)

    def _of_reports(self, view: RunView) -> Iterator[RunFinding]:
        """The parts of reports that cannot be read, and those that a driver which died has left beside a joined one."""
        store = self._place.store
        layout = self._place.layout
        for path in () if self._fast else block_paths(store, layout):
            try:
                check_part(store, layout, path)
            except FileNotFoundError:  # joined with others since it was listed
                continue
            except RunDirectoryError as error:
                yield RunFinding(Severity.CORRUPT, "reports", str(error), path=path)
        superseded = superseded_paths(store, layout.reports)
        if superseded and view.state is not RunState.RUNNING:
            parts = formatting.count(len(superseded), "part")
            where = store.where(layout.reports.path)
            problem = f"{where} has {parts} of reports that a joined one repeats, so programs that read the folder see"
            yield RunFinding(Severity.NOTE, "reports", f"{problem} rows twice: `sparktrain gc` deletes them")

    # ---- checkpoints

    def _of_checkpoints(self, view: RunView, checked: _Checked) -> Iterator[RunFinding]:
        manifests = {}
        for trial in view.trials:
            for checkpoint in trial.checkpoints:
                try:
                    manifests[checkpoint.manifest] = checkpoints.manifest_of(self._place.store, checkpoint)
                except CheckpointError as error:
                    checked.corrupt[checkpoint.manifest] = str(error)
        total = sum(shard.size for manifest in manifests.values() for shard in manifest.shards)
        for trial in view.trials:
            for checkpoint in trial.checkpoints:
                checked.count += 1
                if (manifest := manifests.get(checkpoint.manifest)) is not None:
                    self._verify(checkpoint, manifest, checked, total)
        if checked.corrupt and view.state is RunState.RUNNING:
            self._forget_replaced(checked)
        for trial in view.trials:
            yield from _of_trial(trial, checked.corrupt)

    def _verify(
        self, checkpoint: Checkpoint, manifest: checkpoints.CheckpointManifest, checked: _Checked, total: int
    ) -> None:
        old_size = checked.size
        try:
            for size in checkpoints.verified(self._place.store, checkpoint, manifest, self._fast):
                checked.size += size
                self._on_bytes(checked.size, total)
        except CheckpointError as error:
            checked.corrupt[checkpoint.manifest] = str(error)
        checked.size = old_size + sum(shard.size for shard in manifest.shards)
        self._on_bytes(checked.size, total)

    def _forget_replaced(self, checked: _Checked) -> None:
        """Drop findings about checkpoints that the driver has replaced and deleted meanwhile."""
        _, records = salvage.examine(self._place.store, self._place.layout)
        manifests = {
            entry.manifest for trial in folded(records).trials.values() for entry in trial.checkpoints.retained
        }
        for manifest in [path for path in checked.corrupt if path not in manifests]:
            del checked.corrupt[manifest]

    # ---- results

    def _of_results(self, view: RunView) -> Iterator[RunFinding]:
        store = self._place.store
        path = self._place.layout.results
        if view.state is not RunState.ENDED:
            return
        where = store.where(path)
        try:
            result = from_json(json.loads(store.read(path)))
        except FileNotFoundError:
            problem = f"{where} is missing, though the run has ended"
        except (ValueError, AttributeError, SpecError) as error:
            problem = f"{where} cannot be read: {error}"
        else:
            written = {trial.id: trial.status for trial in result.trials}
            wrong = [trial for trial in view.results if written.get(trial.id) != trial.status]
            if not wrong:
                return
            problem = f"{where} differs from the journal in {_named([trial.id for trial in wrong])}"
        yield RunFinding(Severity.CORRUPT, "results.json", f"{problem}; --repair rewrites it from the journal")


def _of_journal(report: SalvageReport) -> Iterator[RunFinding]:
    for problem in report.problems:
        yield RunFinding(Severity.BLOCKING, "journal", problem)
    for note in report.notes:
        yield RunFinding(Severity.NOTE, "journal", note)


def _of_trial(trial: TrialView, corrupt: dict[str, str]) -> Iterator[RunFinding]:
    bad = [checkpoint for checkpoint in trial.checkpoints if checkpoint.manifest in corrupt]
    # A trial that restarts from nothing would hide the loss: it ends as failed.
    severity = Severity.BLOCKING if len(bad) == len(trial.checkpoints) else Severity.CORRUPT
    if trial.result.status.observed:
        severity = Severity.CORRUPT
    for checkpoint in bad:
        yield RunFinding(severity, "checkpoint", corrupt[checkpoint.manifest], trial.result.id, checkpoint)


def _outlook(view: RunView, corrupt: dict[str, str], report: SalvageReport) -> Iterator[str]:
    """What a driver that resumes the run would do."""
    if view.complete and report.is_intact:
        yield "nothing is left to do"
        return
    fresh = []
    for trial in view.trials:
        if trial.result.status.observed:
            continue
        good = [checkpoint for checkpoint in trial.checkpoints if checkpoint.manifest not in corrupt]
        newest = trial.checkpoint
        if newest is None:
            fresh.append(trial.result.id)
        elif not good:
            yield f"trial {trial.result.id} fails: it has no readable checkpoint; after --repair it starts from nothing"
        elif good[-1] is not newest:
            yield f"trial {trial.result.id} resumes from step {good[-1].step} in place of {newest.step}"
        else:
            yield f"trial {trial.result.id} resumes from step {newest.step}"
    if fresh:
        yield f"{_named(fresh)} {'starts' if len(fresh) == 1 else 'start'} from nothing"
    lost = [trial for trial in report.again if trial >= len(view.trials)]
    if lost:
        yield f"{_named(lost)} {'is' if len(lost) == 1 else 'are'} lost, and proposed under other numbers"
    if view.total is not None and view.total > len(view.trials):
        yield f"{formatting.count(view.total - len(view.trials), 'trial')} not yet started"


def _named(trials: list[TrialId]) -> str:
    ids = ", ".join(map(str, trials[:_SHOWN_TRIALS])) + " ..." * (len(trials) > _SHOWN_TRIALS)
    return f"trial {ids}" if len(trials) == 1 else f"trials {ids}"
