"""A run, or several, as `sparktrain status --json` prints them, described in docs/results-json.md: JSON's own types."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from sparktrain.runs.listing.run_list import ListedRun
from sparktrain.runs.results_json import json_value, trial_json
from sparktrain.runs.view import RunView, TrialView
from sparktrain.state.gangs.step_times import GangTimes
from sparktrain.state.trial import TrialStatus

VERSION = 1
"""The version of the format. It grows when a reader of the old format would misread the new one."""


def run_json(view: RunView) -> dict[str, Any]:
    """One run. Nothing in it changes by itself: times are when something happened."""
    driver = view.driver.identity
    best = view.best
    return {
        "version": VERSION,
        "name": view.name,
        "kind": view.kind,
        "function": view.function,
        "directory": view.directory,
        "state": str(view.state),
        "status": None if view.status is None else str(view.status),
        "ending": None if view.end is None else view.end.ending,
        "reason": None if view.end is None else view.end.reason or None,
        "complete": view.complete,
        "metric": view.spec.metric,
        "mode": view.spec.mode,
        "started": view.times.started,
        "driver_started": view.times.driver_started,
        "last_record": view.times.last_record,
        "seconds": view.times.ran_s,
        "wall_seconds": view.times.wall_s,
        "driver": None if driver is None else _driver(view),
        "total": view.total,
        "counts": {str(status): view.counts.get(status, 0) for status in TrialStatus},
        "best": None if best is None else trial_json(best),
        "trials": [_trial(trial) for trial in view.trials],
        "tensorboard": view.driver.board,
        "notes": list(view.notes),
    }


def runs_json(runs: Sequence[ListedRun], left_out: int) -> dict[str, Any]:
    """Several runs with their views, without their trials, and those that cannot be read, with the reason.

    `left_out` files and folders of the directory are no runs.
    """
    problems = [{"name": run.row.id, "problem": run.row.problem} for run in runs if run.view is None]
    documents = [_listed(run, run.view) for run in runs if run.view is not None]
    return {"version": VERSION, "runs": documents, "problems": problems, "left_out": left_out}


def _listed(run: ListedRun, view: RunView) -> dict[str, Any]:
    of = {key: value for key, value in run_json(view).items() if key != "trials"}
    return of if run.usage is None else {**of, "files": run.usage.files, "size": run.usage.size}


def _driver(view: RunView) -> dict[str, Any]:
    driver = view.driver.identity
    assert driver is not None
    return {
        "host": driver.host,
        "user": driver.user or None,
        "pid": driver.pid,
        "started": driver.started,
        "sparktrain": driver.sparktrain,
        "purpose": driver.purpose or None,
        "answers": view.state == "running",
    }


def _trial(trial: TrialView) -> dict[str, Any]:
    report = trial.report
    newest = trial.checkpoint
    reported = (
        None if report is None else {"step": report.step, "metrics": json_value(report.metrics), "at": trial.reported}
    )
    saved = None if newest is None else {"step": newest.step, "path": trial.manifest, "at": trial.saved}
    return {
        **trial_json(trial.result),
        "since": trial.since,
        "step": trial.step,
        "report": reported,
        "checkpoint": saved,
        "step_times": None if trial.step_times is None else _step_times(trial.step_times),
    }


def _step_times(times: GangTimes) -> dict[str, Any]:
    members = [{"compute_s": of.compute_s, "wait_s": of.wait_s, "data_s": of.data_s} for of in times.members]
    return {"members": members, "slow": None if times.slow is None else to_builtins(times.slow)}
