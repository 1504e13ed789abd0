"""Run directories that a test writes as drivers do: records through a journal, real checkpoints, logs."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparktrain.base.clock import Clock
from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.protocol.messages import Code
from sparktrain.rundir import checkpoints
from sparktrain.rundir.checkpoints import Draft
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import MetricLog
from sparktrain.rundir.report_parts import StepRow, lines_of, step_row
from sparktrain.runs import plan as plans
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.plan import Plan, spec_fields
from sparktrain.runs.view import RunView
from sparktrain.runs.watcher import Observer
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.outcome import Failure, FailureKind, Report, Restart
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    DriverStarted,
    GangFormed,
    GangRestarted,
    RunEnded,
    TrialConcluded,
    TrialReported,
    TrialsAdded,
)
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store
from sparktrain.store.url import open_store

BEGUN = 1_700_000_000.0
"""When the first driver of each of these runs started, in seconds since 1970."""
PLAN_FIELDS = ("space", "sampler", "env", "origin", "refit", "warm")
"""The options of a scripted run that are fields of its plan."""


class ScriptedRun:
    """A run in a directory. Each method writes what a driver would, at `at`, which a test moves."""

    def __init__(self, folder: Path, name: str = "mnist", total: int | None = 4, **options: Any) -> None:
        self.store: Store = open_store(options.pop("url", str(folder)))
        self.layout = RunLayout(name)
        self.at = BEGUN
        self._reports = MetricLog(self.store, self.layout)
        self._scratch = folder.parent / "scratch"
        self._trials = 0
        gang = GangSpec(workers=options.pop("workers", 1), backend=Backend.NONE)
        of_plan = {name: options.pop(name) for name in PLAN_FIELDS if name in options}
        spec = SweepSpec(name=name, seed=7, gang=gang, **{"metric": "accuracy", **options})
        code = Code(hashlib.sha256(b"function").hexdigest(), b"function")
        self.plan = Plan(
            kind="sweep" if total != 1 else "run",
            function="train.py:train",
            code=code.digest,
            parts={},
            preload=(),
            data_version=None,
            spec=spec_fields(spec),
            **{"space": {"kind": "cases", "values": [{"lr": 0.1}]}, **of_plan},
        )
        plans.write(self.store, self.layout, self.plan, code)
        overview = {"version": 1, "name": name, "started": BEGUN, "trials": total, "plan": self.plan.digest}
        self.store.put_if_absent(self.layout.spec, json.dumps(overview).encode())
        self.journal: Journal | None = None
        self._batch: list[AnyRecord] | None = None

    @property
    def place(self) -> RunLocation:
        return RunLocation(self.store, self.layout)

    @property
    def directory(self) -> str:
        return self.place.where

    def write(self, *records: AnyRecord) -> None:
        assert self.journal is not None
        if self._batch is None:
            self.journal.append(records)
        else:
            self._batch += records

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write the records of the block as one batch, as drivers do with those of a tick."""
        self._batch = []
        yield
        records, self._batch = self._batch, None
        self.write(*records)

    def begin(self, host: str = "host-1", address: str = "") -> "ScriptedRun":
        """A driver takes the run over."""
        who = DriverIdentity(host, 4711, self.at, "0.1.0", address, "ab")
        self.journal, _ = Journal.claim(self.store, self.layout.journal, who)
        self.write(DriverStarted(plan=self.plan.digest, space=self.plan.space_digest, at=self.at))
        return self

    def add(self, *cases: dict[str, Any]) -> None:
        self.write(TrialsAdded(cases=cases, exhausted=False, asked=len(cases), observed=0, at=self.at))

    def form(self, trial: int, generation: int = 1, hosts: Sequence[str] = ("host-2",)) -> None:
        record = GangFormed(trial=TrialId(trial), generation=Generation(generation), hosts=tuple(hosts), at=self.at)
        self.write(record)

    def report(self, trial: int, step: int, **metrics: float) -> None:
        self.write(TrialReported(trial=TrialId(trial), report=Report(step, metrics), at=self.at))

    def note(self, trial: int, *steps: int, generation: int = 1, rank: int = 0, **metrics: float) -> None:
        """A block of reports: one for each step, at so many seconds since the run started."""
        self.record(
            [step_row(trial, generation, rank, step, BEGUN + step, metrics or {"loss": 1 / step}) for step in steps]
        )

    def record(self, rows: Sequence[StepRow]) -> None:
        """A block of reports."""
        self._reports.append(lines_of(rows))

    def save(self, trial: int, step: int, generation: int = 1, score: float | None = None) -> Checkpoint:
        """A real checkpoint, of two shards, which counts; those that it makes superfluous stay where they are."""
        folder = self._scratch / f"{self.layout.path}-{trial}-{generation}-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"%d" % step * 1000)
        (folder / "state.json").write_bytes(b"{}")
        member = Member(RunId(self.layout.path), TrialId(trial), Generation(generation))
        saved = checkpoints.write(self.store, self.layout, Draft(member, step, folder, score=score))
        self.write(CheckpointAcknowledged(trial=TrialId(trial), checkpoint=saved, at=self.at))
        return saved

    def lose(self, trial: int, summary: str = "agent on host-2 was lost: no heartbeat") -> None:
        restart = Restart(0, "host-2", FailureKind.LOST, summary, 0.0)
        self.write(GangRestarted(trial=TrialId(trial), restart=restart, at=self.at))

    def succeed(self, trial: int, **metrics: float) -> None:
        status = TrialStatus.SUCCEEDED
        self.write(TrialConcluded(trial=TrialId(trial), status=status, metrics=metrics, seconds=5.0, at=self.at))

    def fail(self, trial: int, summary: str = "ValueError: units", status: TrialStatus = TrialStatus.FAILED) -> None:
        failure = Failure(FailureKind.EXCEPTION, summary)
        self.write(TrialConcluded(trial=TrialId(trial), status=status, failure=failure, seconds=2.0, at=self.at))

    def end(self, ending: str = "complete", reason: str = "") -> None:
        self.write(RunEnded(ending=ending, reason=reason, seconds=self.at - BEGUN, at=self.at))

    def log(self, trial: int, text: str, generation: int = 1, rank: int = 0) -> None:
        """The whole log of a member."""
        member = Member(RunId(self.layout.path), TrialId(trial), Generation(generation), Rank(rank))
        self.store.put_if_absent(self.layout.member(member).log, text.encode())


def typical(folder: Path, name: str = "mnist") -> ScriptedRun:
    """Four trials: 0 has succeeded, 1 has failed, 2 runs in its second generation with a checkpoint, 3 is queued."""
    run = ScriptedRun(folder, name).begin()
    run.add(*({"lr": 10.0**-exponent, "dropout": 0.5} for exponent in range(4)))
    run.at += 10
    run.form(0)
    run.form(1, hosts=("host-3",))
    run.at += 50
    run.save(0, 100)
    run.save(0, 200)
    run.succeed(0, accuracy=0.9, loss=0.3)
    run.fail(1)
    run.form(2)
    run.save(2, 100)
    run.at += 20
    run.lose(2)
    run.form(2, generation=2, hosts=("host-3.example.org",))
    run.report(2, 150, accuracy=0.5, loss=1.2)
    run.log(0, "epoch 1\nepoch 2\n")
    run.log(2, "first\n")
    run.log(2, "second\n", generation=2)
    return run


class HandClock(Clock):
    """A clock that a test moves."""

    def __init__(self, wall: float = BEGUN + 100.0) -> None:
        self.at = wall

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def looked_at(run: ScriptedRun, at: float = BEGUN + 100.0) -> RunView:
    """The run as a reader sees it at that time."""
    return Observer(run.place, HandClock(at)).look()


def age(folder: Path, seconds: float) -> None:
    """Make all files in a folder so much older."""
    for path in folder.rglob("*"):
        written = path.lstat().st_mtime - seconds
        os.utime(path, (written, written), follow_symlinks=False)


def spoil(path: str | Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 1
    Path(path).write_bytes(content)
