"""Tracks a run in MLflow: a parent run, and a child for each trial. The only module that imports MLflow."""

import logging
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from sparktrain.base.backoff import Backoff
from sparktrain.base.clock import SystemClock
from sparktrain.base.formatting import first_line
from sparktrain.base.ids import CHIEF, Generation, Member, RunId, TrialId
from sparktrain.config.tracking_options import MLflow, masked
from sparktrain.driver.tracking.callback import (
    Callback,
    TrackedEnd,
    TrackedReport,
    TrackedResult,
    TrackedRun,
    TrackedTrial,
)
from sparktrain.rundir.journal.run_claim import older_id
from sparktrain.rundir.metric_log import read_blocks
from sparktrain.runs.exported_model import newest_process
from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of
from sparktrain.store.held_folders import held

METRICS = 1000
PARAMS = 100
TAGS = 100
"""Most entries of a batch."""
KEY_CHARS = 250
PARAM_CHARS = 6000
TAG_CHARS = 5000
"""Most characters, of MLflow 3; of a tag as many as older servers take, too."""

_FORBIDDEN = re.compile(r"[^\w\-. /]", re.ASCII)

T = TypeVar("T")
Point = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, and step."""
CONNECT_S = 3.0
"""How long a server may take to accept a connection."""
ANSWER_S = 10
"""How long it may take for an answer, in whole seconds, unless the user has set MLflow's own limit: its client
tries for a quarter of an hour by default, while the end of the run waits for half a minute."""
LAST_S = 10.0
"""How long the end of a run retries what the server has not taken."""

RUN = "sparktrain.run"
TRIAL = "sparktrain.trial"
STATUS = "sparktrain.status"
COMPLETE = "sparktrain.complete"
"""Tags: of the parent; of a child; of both; of a child that has everything of its trial."""
MODEL = "sparktrain.model"
_DIRECTORY = "sparktrain.directory"
_PARENT = "mlflow.parentRunId"
_STATUSES = {"succeeded": "FINISHED", "failed": "FAILED", "lost": "FAILED", "error": "FAILED"}
"""MLflow's statuses; `KILLED` for all others."""

logger = logging.getLogger("sparktrain")


class MLflowTracker(Callback):
    """Sends a run to MLflow by its client alone: the fluent interface has one active run for a whole process.

    Whatever the server does not take is left out at first. At the end of the run, or of a later call that resumes it,
    each trial without the tag `sparktrain.complete` is sent again from the reports in the run directory: MLflow drops
    the points that it has, because they have the same time.
    """

    gather_s = 2.0

    def __init__(self, options: MLflow, uri: str, last_s: float = LAST_S) -> None:
        """`uri` is the address that counts; `last_s` how long the end of the run tries."""
        self._options = options
        self._uri = uri
        self._last_s = last_s
        self._clock = SystemClock()
        self._backoff = _backoff()
        self._due = 0.0
        """No attempt comes before this time."""
        self._warned = False
        self._run: TrackedRun | None = None
        self._client: Any = None
        self._experiment = self._parent = ""
        self._children: dict[int, str] = {}
        """MLflow's id of each trial's run, by number."""
        self._complete: set[int] = set()
        """Trials that MLflow has as a whole."""
        self._missing: set[int] = set()
        """Trials that have parts which were not sent."""
        self._sent: dict[int, int] = {}
        """Reports that were sent, by trial."""
        self._newest: dict[int, tuple[int, float]] = {}
        """Step and time of the newest report, by trial."""

    # ---- events

    def run_started(self, run: TrackedRun) -> None:
        """See base class."""
        self._run = run
        self._attempt(self._join)

    def trial_started(self, trial: TrackedTrial) -> None:
        """See base class."""
        if not self._attempt(lambda: self._start(trial)):
            self._missing.add(trial.number)

    def reported(self, trial: TrackedTrial, reports: Sequence[TrackedReport]) -> None:
        """See base class."""
        number = trial.number
        self._note(number, reports)
        if number in self._children and self._attempt(lambda: self._log(number, points_of(reports))):
            self._sent[number] = self._sent.get(number, 0) + len(reports)
        else:
            self._missing.add(number)

    def trial_ended(self, trial: TrackedEnd) -> None:
        """See base class."""
        # A trial without all of its reports stays open, without the tag: the end of the run sends it again from the
        # run directory.
        if self._sent.get(trial.number, 0) == trial.reports and trial.number not in self._missing:
            self._attempt(lambda: self._end(trial))

    def run_ended(self, result: TrackedResult) -> None:
        """See base class."""
        deadline = self._clock.now() + self._last_s
        self._due = 0.0
        while not self._attempt(lambda: self._finish(result)):
            if self._clock.now() + self._backoff.pause_s > deadline:
                incomplete_count = len([trial for trial in result.trials if trial.number not in self._complete])
                logger.warning(
                    "MLflow at %s lacks parts of run %s (%d trials); to send them later: sparktrain resume %s "
                    "--tracking mlflow",
                    masked(self._uri), result.run.name, incomplete_count, shlex.quote(result.run.directory),
                )  # fmt: skip
                return
            self._clock.pause(self._backoff.next_s())
            self._due = 0.0

    # ---- the server

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do `work`, unless a failure was a moment ago; returns whether it is done."""
        if self._clock.now() < self._due:
            return False
        try:
            self._reach()
            self._join()
            work()
        except Exception as error:
            self._due = self._clock.now() + self._backoff.next_s()
            self._warn(error)
            return False
        self._backoff = _backoff()
        return True

    def _warn(self, error: Exception) -> None:
        line = first_line(error).replace(self._uri, masked(self._uri))
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        logger.log(
            level,
            "MLflow at %s has not taken what the run sends (%s: %s): training continues, and it is sent later",
            masked(self._uri), type(error).__name__, line,
        )  # fmt: skip

    def _reach(self) -> None:
        """Raise OSError at once where nothing listens."""
        parts = urlsplit(self._uri)
        if parts.scheme in ("http", "https") and parts.scheme not in getproxies():
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), CONNECT_S).close()

    def _join(self) -> None:
        """Find the parent run and its children, or create the parent."""
        if self._parent:
            return
        assert self._run is not None
        if self._client is None:
            # MLflow takes seconds to import, and 173 MB: only the thread of this callback waits for it.
            from mlflow import MlflowClient

            _set_limits()
            self._client = MlflowClient(self._uri)
        client = self._client
        name = self._options.experiment
        experiment = client.get_experiment_by_name(name)
        self._experiment = client.create_experiment(name) if experiment is None else experiment.experiment_id
        # Search first: a driver after a killed one joins the runs that are there.
        runs = self._search(f"tags.`{RUN}` = '{self._run.id}'") or self._of_older_version(self._run)
        if not runs:
            self._parent = client.create_run(
                self._experiment,
                start_time=round(self._run.started * 1000),
                tags=self._tags(self._run),
                run_name=text_of(self._run.name, KEY_CHARS),
            ).info.run_id
            return
        parent = runs[0].info.run_id
        for child in self._search(f"tags.`{_PARENT}` = '{parent}'"):
            if (number := child.data.tags.get(TRIAL, "")).isdecimal():
                self._children[int(number)] = child.info.run_id
                if COMPLETE in child.data.tags:
                    self._complete.add(int(number))
                else:
                    self._missing.add(int(number))
        client.update_run(parent, status="RUNNING")
        client.set_tag(parent, RUN, self._run.id)
        client.set_tag(parent, _DIRECTORY, text_of(self._run.directory, TAG_CHARS))  # it may have moved
        self._parent = parent

    def _of_older_version(self, run: TrackedRun) -> list[Any]:
        """The run of this directory, as an older sparktrain has named it, and its copies."""
        directory = text_of(run.directory, TAG_CHARS)
        candidates = self._search(f"tags.`{RUN}` = '{older_id(run.name, run.started)}'")
        return [candidate for candidate in candidates if candidate.data.tags.get(_DIRECTORY) == directory]

    def _tags(self, run: TrackedRun) -> dict[str, str]:
        tags = {key_of(name): text_of(value, TAG_CHARS) for name, value in self._options.tags.items()}
        doc = {"directory": run.directory, "function": run.function, "kind": run.kind}
        if run.metric is not None:
            doc |= {"metric": run.metric, "mode": run.mode}
        return {**tags, RUN: run.id, **{f"sparktrain.{name}": text_of(value, TAG_CHARS) for name, value in doc.items()}}

    def _search(self, query: str) -> list[Any]:
        runs = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment], query, max_results=1000, page_token=token)
            runs += page
            if not (token := page.token):
                return runs

    # ---- what is sent

    def _start(self, trial: TrackedTrial) -> None:
        self._complete.discard(trial.number)
        child = self._child(trial.number, trial.params)
        if trial.generation > 1:
            self._client.update_run(child, status="RUNNING")
            self._client.set_tag(child, "sparktrain.generation", str(trial.generation))

    def _child(self, number: int, params: Mapping[str, Any]) -> str:
        """The run of a trial, which has its parameters."""
        new_params = params_of(params)
        if (run_id := self._children.get(number)) is None:
            tags = {_PARENT: self._parent, TRIAL: str(number)}
            run_id = self._client.create_run(self._experiment, tags=tags, run_name=f"trial {number}").info.run_id
            self._children[number] = run_id
            stored_params: dict[str, str] = {}
        else:
            stored_params = self._client.get_run(run_id).data.params
        self._batch(run_id, params={name: value for name, value in new_params.items() if name not in stored_params})
        changed = {name: value for name, value in new_params.items() if stored_params.get(name, value) != value}
        tags = {key_of(f"sparktrain.param.{name}"): text_of(value, TAG_CHARS) for name, value in changed.items()}
        self._batch(run_id, tags=tags)
        return run_id

    def _log(self, number: int, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        for chunk in chunks(points, METRICS):
            self._client.log_batch(self._children[number], metrics=[Metric(*point) for point in chunk])

    def _batch(self, run: str, params: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None) -> None:
        from mlflow.entities import Param, RunTag

        for chunk in chunks(list((params or {}).items()), PARAMS):
            self._client.log_batch(run, params=[Param(*pair) for pair in chunk])
        for chunk in chunks(list((tags or {}).items()), TAGS):
            self._client.log_batch(run, tags=[RunTag(*pair) for pair in chunk])

    def _note(self, number: int, reports: Sequence[TrackedReport]) -> None:
        for report in reports:
            self._newest[number] = max(self._newest.get(number, (0, 0.0)), (report.step, report.time))

    def _end(self, trial: TrackedEnd) -> None:
        """The final metrics at the newest step, just after its report, and the status."""
        child = self._child(trial.number, trial.params)
        assert self._run is not None
        step, time = self._newest.get(trial.number, (0, self._run.started))
        at = round(time * 1000) + 1
        self._log(trial.number, [(key_of(name), float(value), at, step) for name, value in trial.metrics.items()])
        error = {"sparktrain.error": text_of(trial.error, TAG_CHARS)} if trial.error else {}
        self._batch(child, tags={STATUS: trial.status, "sparktrain.seconds": f"{trial.seconds:.3f}", **error})
        self._client.set_terminated(child, _STATUSES.get(trial.status, "KILLED"))
        self._batch(child, tags={COMPLETE: str(trial.generation)})  # last: without it all is sent again
        self._complete.add(trial.number)

    def _finish(self, result: TrackedResult) -> None:
        self._catch_up([trial for trial in result.trials if trial.number not in self._complete])
        best = next((trial for trial in result.trials if trial.number == result.best), None)
        tags = {STATUS: result.status}
        if result.reason:
            tags["sparktrain.reason"] = text_of(result.reason, TAG_CHARS)
        if best is not None:
            tags["sparktrain.best"] = str(best.number)
            self._log_best(result, best)
        self._batch(self._parent, tags=tags)
        self._client.set_terminated(self._parent, _STATUSES.get(result.status, "KILLED"))

    def _catch_up(self, trials: Sequence[TrackedEnd]) -> None:
        """Send trials from what the run directory has of them."""
        if not trials:
            return
        assert self._run is not None
        place = place_of(self._run.directory, LOOK_TIMEOUT_S)
        rows: dict[int, list[TrackedReport]] = {trial.number: [] for trial in trials}
        for row in read_blocks(place.store, place.layout)[1]:
            if row.rank == CHIEF and row.trial in rows:
                metrics = {name: float(value) for name, value in row.metrics.items()}
                rows[row.trial].append(
                    TrackedReport(generation=row.generation, step=row.step, time=row.time, metrics=metrics)
                )
        for trial in trials:
            self._child(trial.number, trial.params)
            self._note(trial.number, rows[trial.number])
            # With the times of the reports: MLflow drops a point that it has, and keeps one of another time twice.
            self._log(trial.number, points_of(rows[trial.number]))
            self._end(trial)

    def _log_best(self, result: TrackedResult, best: TrackedEnd) -> None:
        """The best trial's metrics and parameters on the parent, and its model, unless they are there."""
        from mlflow.entities import Metric

        step, time = self._newest.get(best.number, (0, result.run.started))
        points = [
            Metric(key_of(name), float(value), round(time * 1000) + 1, step) for name, value in best.metrics.items()
        ]
        for chunk in chunks(points, METRICS):
            self._client.log_batch(self._parent, metrics=list(chunk))
        place = place_of(result.run.directory, LOOK_TIMEOUT_S)
        chief = Member(RunId(place.layout.path), TrialId(best.number), Generation(best.generation), CHIEF)
        model = newest_process(place.store, place.layout, chief).model
        key = f"{best.number}/{best.generation}"
        if self._options.log_model == "none" or not place.store.exists(model):
            return
        if self._client.get_run(self._parent).data.tags.get(MODEL) == key:
            return
        with held("mlflow") as folder:
            copy = folder / Path(model).name
            with copy.open("wb") as file:
                for piece in place.store.pieces(model):
                    file.write(piece)
            self._client.log_artifact(self._parent, str(copy), "model")
        self._client.set_tag(self._parent, MODEL, key)


def _set_limits() -> None:
    """What MLflow's client reads from variables of this process; those of the user count."""
    from mlflow import environment_variables as known

    settings: list[tuple[Any, object]] = [
        (known.MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT, True),  # two lines for each trial, in the progress and in JSON
        (known.MLFLOW_HTTP_REQUEST_TIMEOUT, ANSWER_S),
        (known.MLFLOW_HTTP_REQUEST_MAX_RETRIES, 0),  # the tracker has its own retries
    ]
    for setting, value in settings:
        if not setting.is_set():
            setting.set(value)


def _backoff() -> Backoff:
    return Backoff(1.0, 60.0, (0.8, 1.2))


def key_of(name: str) -> str:
    """A name that MLflow takes: other characters become `_`, and it is a path that stays below its root.

    >>> key_of("f1@0.5 <val>"), key_of("../x"), key_of("/a//b/")
    ('f1_0.5 _val_', '_/x', 'a/b')
    """
    parts = [part for part in _FORBIDDEN.sub("_", name).split("/") if part]
    return "/".join("_" if set(part) == {"."} else part for part in parts)[:KEY_CHARS].rstrip("/") or "_"


def text_of(value: object, limit: int) -> str:
    """A value as text of at most `limit` characters; the end of a longer one is `...`."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def params_of(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Parameters as MLflow keeps them; a nested one has its path as name.

    >>> params_of({"lr": 0.1, "optimizer": {"name": "sgd"}})
    {'lr': '0.1', 'optimizer.name': 'sgd'}
    """
    flat_params: dict[str, str] = {}
    for name, value in params.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            flat_params |= params_of(value, f"{path}.")
        else:
            flat_params[key_of(path)] = text_of(value, PARAM_CHARS)
    return flat_params


def points_of(reports: Sequence[TrackedReport]) -> list[Point]:
    """Reports as points with their own times, so that MLflow drops what it has already."""
    return [
        (key_of(name), float(value), round(report.time * 1000), report.step)
        for report in reports
        for name, value in report.metrics.items()
    ]


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, at most `size` at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))
