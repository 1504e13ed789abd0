"""What a run directory holds of a run, and how a driver that resumes it restores the state of the drivers before it."""

import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from sparktrain.base import formatting
from sparktrain.base.clock import SystemClock, time_of_day
from sparktrain.base.garbage import uncollected
from sparktrain.base.ids import TrialId
from sparktrain.cluster.yarn_container import this_attempt, this_user
from sparktrain.config.versions import installed_versions
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal import reader, writer
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import plan as plans
from sparktrain.runs.heartbeat_watch import HeartbeatWatch
from sparktrain.runs.lost_records import check_whole
from sparktrain.runs.plan import Plan
from sparktrain.search.sampler import Observation, ObservedStatus, PastAnswer, PastSuggestion
from sparktrain.state.cases.case_end import CaseEnd
from sparktrain.state.records import (
    AnyRecord,
    DriverStarted,
    RunEnded,
    RungReached,
    TrialAnswered,
    TrialConcluded,
    TrialsAdded,
)
from sparktrain.state.recovery import fold, folded
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Pruning, Trial
from sparktrain.store.base import Store

ALIVE_TIMEOUT_S = 2.0
"""How long the newest driver of a run may take to answer."""
MOST_BYTES = 2**26
"""The most that `run.json` has."""
_PIECE_BYTES = 16384


@dataclass(frozen=True)
class StoredRun:
    """A run that a directory holds."""

    plan: Plan
    """The plan of the newest driver."""
    opened: JournalContents
    driver: DriverIdentity | None
    """The newest driver; None when it died before it had started."""

    @property
    def ended(self) -> bool:
        """The newest driver has recorded its end, whatever the reason."""
        return self.end is not None

    @property
    def end(self) -> RunEnded | None:
        """The newest driver's record of its end; None when it has recorded none."""
        # Not by results.json: a driver that died never wrote it, one that was stopped may write it late, and the next
        # driver deletes it.
        return self._last if isinstance(self._last, RunEnded) else None

    @property
    def ever_started(self) -> bool:
        """A driver had all that its trials need, and has started to run them."""
        return any(isinstance(record, DriverStarted) for record in self.opened.records)

    @property
    def retried(self) -> bool:
        """The newest driver has queued failed trials for a retry, as its caller asked."""
        start = self._start
        return start is not None and start.retry_failed

    def extended_before(self, driver: DriverIdentity) -> bool:
        """YARN has started `driver` in place of one that has extended the run by its call."""
        # The new driver makes the same call, which would add its trials a second time.
        replaced = self.driver is not None and driver.replaces(self.driver)
        return replaced and self._start is not None and self._start.extends

    @property
    def _start(self) -> DriverStarted | None:
        """The newest driver's record of its start."""
        return next((record for record in reversed(self.opened.records) if isinstance(record, DriverStarted)), None)

    @property
    def _last(self) -> AnyRecord | None:
        """The newest record of a driver's start or end."""
        return next(
            (record for record in reversed(self.opened.records) if isinstance(record, RunEnded | DriverStarted)), None
        )

    @uncollected()
    def sweep(self) -> Sweep:
        """The trials as the newest driver has left them."""
        return folded(self.opened.records)


def look(store: Store, layout: RunLayout) -> StoredRun | None:
    """The run in the directory; None when there is none. Blocks on the store.

    Raises RunDirectoryError when it cannot be read or is being deleted, JournalCorruptError when its journal is
    corrupt, and OSError when the store fails.
    """
    try:
        overview = read_overview(store, layout)
    except FileNotFoundError:
        return None
    opened = reader.read(store, layout.journal)
    writer.refuse_removed(store, layout.journal, opened.removal)
    check_whole(store, layout, opened.records, lambda: reader.read(store, layout.journal).records)
    started = [record.plan for record in opened.records if isinstance(record, DriverStarted)]
    plan = plans.read(store, layout, started[-1] if started else str(overview["plan"]))
    return StoredRun(plan, opened, writer.newest_driver(store, layout.journal))


def this_driver(address: str = "", fingerprint: str = "") -> DriverIdentity:
    """The identity of this process, with address and fingerprint of its coordinator where it has one."""
    application, attempt = this_attempt()
    return DriverIdentity(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=SystemClock().wall(),
        sparktrain=installed_versions().get("sparktrain", "unknown"),
        address=address,
        fingerprint=fingerprint,
        application=application,
        attempt=attempt,
        user=this_user(),
    )


def read_overview(store: Store, layout: RunLayout) -> dict[str, Any]:
    """The content of `run.json`. Blocks. Raises OSError; RunDirectoryError where this sparktrain cannot read it."""
    where = store.where(layout.spec)
    content = store.read_range(layout.spec, 0, MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise RunDirectoryError(
            f"{where} is no overview of a run, for it has more than {formatting.size(MOST_BYTES)}: choose another dir"
        )
    try:
        overview = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{where} is no overview of a run ({error}): put a copy back") from error
    version = overview.get("version") if isinstance(overview, dict) else None
    if isinstance(version, int) and version > plans.VERSION:
        raise RunDirectoryError(
            f"{where} has version {version}, and this sparktrain reads version {plans.VERSION}: use the newer "
            "sparktrain that wrote it"
        )
    if not isinstance(version, int) or "plan" not in overview:
        raise RunDirectoryError(f"{where} is not of a run of this sparktrain: choose another name or dir")
    return cast(dict[str, Any], overview)


def check_alone(stored_run: StoredRun, store: Store, layout: RunLayout, this: DriverIdentity) -> None:
    """Raises RunDirectoryError when the newest driver of the run answers and is not `this` one, unless YARN has
    replaced that driver by this one: YARN has given it up, even if it does not know that yet.

    Blocks for some seconds, and 45 s at most where a coordinator in the cluster is gone. It only helps people: a driver
    that does not answer and is taken over is fenced.
    """
    driver = stored_run.driver
    if driver is None or stored_run.ended or this.replaces(driver) or driver.fingerprint == this.fingerprint != "":
        return  # after a call that lost its store a pool owns no run, and here that pool itself asks
    if answers(driver) or HeartbeatWatch(store, layout, SystemClock()).proves(driver):
        raise RunDirectoryError(
            f"run directory {store.where(layout.path)} is in use: {driver} has owned this run since "
            f"{time_of_day(driver.started)}; wait for its end, stop it, or choose another name"
        )


def answers(driver: DriverIdentity, timeout_s: float = ALIVE_TIMEOUT_S) -> bool:
    """Whether the coordinator of that driver still listens at its address; another program there does not count.

    Blocks for `timeout_s` at most.
    """
    host, _, port = driver.address.rpartition(":")
    if not host or not port.isdigit():
        return False
    # Few looks at a run get here, and the command line loads neither OpenSSL nor cryptography for the others.
    import ssl

    from sparktrain.protocol.certificates import server_fingerprint

    try:
        certificate = ssl.DER_cert_to_PEM_cert(_certificate_of((host, int(port)), timeout_s))
        return server_fingerprint(certificate.encode()) == driver.fingerprint
    except (OSError, ValueError, OverflowError):
        return False


def _certificate_of(address: tuple[str, int], timeout_s: float) -> bytes:
    """The certificate of the process that listens there, in DER. Blocks for `timeout_s` at most; raises OSError.

    It closes the connection without answering that certificate: gRPC refuses a handshake without a client certificate,
    and would log a line on the driver's stderr at each look at a run.
    """
    import ssl  # as above

    clock = SystemClock()
    until = clock.now() + timeout_s
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # in which the certificate comes before anything is asked for
    received = ssl.MemoryBIO()
    to_send = ssl.MemoryBIO()
    tls = context.wrap_bio(received, to_send)
    with socket.create_connection(address, timeout_s) as connection:
        while True:
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                return tls.getpeercert(binary_form=True) or b""
            connection.settimeout(max(0.001, until - clock.now()))
            connection.sendall(to_send.read())
            if not (data := connection.recv(_PIECE_BYTES)):
                raise ConnectionError(f"{address} ends the connection")
            received.write(data)


def past(records: Sequence[AnyRecord], metric: str | None) -> list[PastSuggestion | Observation]:
    """What samplers of earlier drivers have suggested and observed, in the order in which they did: for `restore`."""
    ends = _ends(records, metric)
    history: list[PastSuggestion | Observation] = []
    first = observed_count = 0
    for record in records:
        if isinstance(record, TrialsAdded):
            history += ends[observed_count : record.observed]
            history.append(PastSuggestion(TrialId(first), record.cases, record.exhausted, record.memo))
            first = first + len(record.cases)
            observed_count = max(observed_count, record.observed)
    return history + ends[observed_count:]


def _ends(records: Sequence[AnyRecord], metric: str | None) -> list[Observation]:
    """What samplers of earlier drivers have observed, in that order."""
    added = [record for record in records if isinstance(record, TrialsAdded)]
    if any(record.each > 1 for record in added):
        return _ends_of_cases(records, metric)
    cases = [case for record in added for case in record.cases]
    stops = {record.trial: record for record in records if isinstance(record, RungReached) and not record.continues}
    return [
        observation(_ended(record, cases[record.trial], stops.get(record.trial)), metric)
        for record in records
        if isinstance(record, TrialConcluded) and record.status.observed
    ]


def _ends_of_cases(records: Sequence[AnyRecord], metric: str | None) -> list[Observation]:
    sweep = folded((), metric)
    observations: list[Observation] = []
    for record in records:
        fold(sweep, (record,))
        if sweep.observed > len(observations):
            assert isinstance(record, TrialConcluded)
            observations.append(observation(sweep.cases.end(sweep.trials[record.trial]), metric))
    return observations


def past_answers(records: Sequence[AnyRecord]) -> list[PastAnswer]:
    """What samplers of earlier drivers have answered running trials, in that order: for `AnsweringSampler.open`."""
    answered = [record for record in records if isinstance(record, TrialAnswered)]
    return [PastAnswer(answer.trial, answer.params, answer.memo) for answer in answered]


def _ended(record: TrialConcluded, params: dict[str, Any], stop: RungReached | None) -> Trial:
    pruning = None if stop is None else Pruning(stop.step, stop.value, stop.reason)
    return Trial(record.trial, params, record.status, outcome=record.outcome, pruning=pruning)


def observation(trial: Trial | CaseEnd, metric: str | None) -> Observation:
    """What a sampler learns from the end of a trial with a result: of a pruned one, the value that it was judged by.

    Of a case with several trials: the means of their metrics, once.
    """
    status = ObservedStatus(trial.status)
    if isinstance(trial, CaseEnd):
        return Observation(TrialId(trial.id), trial.params, status, trial.metrics, trial.step)
    params = trial.params if trial.takeover.proposed is None else trial.takeover.proposed
    if status is ObservedStatus.PRUNED and trial.pruning is not None:
        value = trial.pruning.value
        judged = {} if metric is None or value is None else {metric: value}
        return Observation(trial.id, params, status, judged, trial.pruning.step)
    return Observation(trial.id, params, status, {} if status is ObservedStatus.FAILED else trial.metrics)
