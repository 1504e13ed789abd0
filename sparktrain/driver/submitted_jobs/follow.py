"""Runs `spark-submit` and follows its application until it ends."""

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.process_tree import die_with_parent
from sparktrain.display.watch import Changes
from sparktrain.driver.submitted_jobs.reports import Reports, SubmittedApplication
from sparktrain.driver.submitted_jobs.verdict import Verdict, verdict_of
from sparktrain.errors import InfraError, RunDirectoryError, SpecError, StoreError
from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of
from sparktrain.runs.view import RunState, RunView
from sparktrain.runs.watcher import Observer

SUBMIT_TIMEOUT_S = 900.0
"""How long spark-submit may upload files until YARN has the application."""
OUTAGE_TIMEOUT_S = 900.0
"""How long the ResourceManager may not answer, where spark-submit does not wait for the application."""
SETTLE_TIMEOUT_S = 30.0
"""How long the ResourceManager may take to report an end that spark-submit knows, or, restarted, the application."""
END_TIMEOUT_S = 60.0
"""How long spark-submit may take to end after Ctrl-C, which reaches it too."""
POLL_S = 2.0
"""Between two looks at the application and the run."""
_TAIL_BYTES = 64 * 1024

logger = logging.getLogger("sparktrain")


class JobEnded(Struct, frozen=True):
    """The end of a job with its driver on another machine."""

    verdict: Verdict
    run: RunView | None
    """The run as its directory has it; None where the job has not ended it."""
    output: str = ""
    """The driver's output, or where to find it; empty when the run itself explains the end."""


class RunLookout:
    """Reads a run from its directory, which may not exist yet. For one thread."""

    def __init__(self, directory: str) -> None:
        self._observer = Observer(place_of(directory, LOOK_TIMEOUT_S), SystemClock())

    def look(self) -> RunView | None:
        """The run as it is now; None when it does not exist yet or its store does not answer. Blocks on the store."""
        try:
            return self._observer.look()
        except (RunDirectoryError, FileNotFoundError, StoreError) as error:
            logger.info("the run cannot be read: %s", error)
            return None


def spark_submit(home: str | None) -> str:
    """The program of the Spark in `home` if that is set, else the first on the path, else PySpark's own. Raises
    SpecError when there is none."""
    if home:
        return os.path.join(home, "bin", "spark-submit")
    sibling = Path(sys.executable).with_name("spark-submit")
    program = shutil.which("spark-submit") or (str(sibling) if sibling.is_file() else None)
    if program is None:
        raise SpecError(
            "there is no spark-submit on the path: set SPARK_HOME to the folder of a Spark, or pip install "
            "'sparktrain[spark]'"
        )
    return program


def run_here(line: Sequence[str]) -> int:
    """Run a job with its driver on this machine, which prints to stdout and stderr of this process. Blocks until it has
    ended; returns its exit code, 128 and more for a signal."""
    with _started(line, None) as process:
        code = process.wait()
    return code if code >= 0 else 128 - code


def follow(
    line: Sequence[str],
    reports: Reports,
    run_directory: RunLookout,
    show: Callable[[str], None],
    *,
    poll_s: float = POLL_S,
    submit_timeout_s: float = SUBMIT_TIMEOUT_S,
) -> JobEnded:
    """Run a job with its driver in a container, and `show` each change of the application and the run as a line.

    Blocks until the application has ended, on YARN also where spark-submit does not wait for that
    (`spark.yarn.submit.waitAppCompletion`): the ResourceManager then reports it. Raises InfraError when YARN has no
    application in time, and KeyboardInterrupt for Ctrl-C, which does not end the application.
    """
    # Before the job starts: the directory may have the end of an earlier driver, which must not count as that of this
    # job.
    old_run = run_directory.look()
    with TemporaryFile() as printed:
        application = _FollowedApplication(reports, partial(_tail, printed), show, poll_s)
        try:
            with _started(line, printed) as process:
                _wait(process, application, run_directory, Changes(show), submit_timeout_s)
                application.settle()
        except KeyboardInterrupt as error:
            application.look()  # the cluster may have accepted it since the last look
            raise KeyboardInterrupt(_interruption_text(application.last, reports.manager)) from error
        output = _tail(printed)
    run = run_directory.look()
    verdict = verdict_of(application.last, output, run, old_run.times.driver_started if old_run is not None else None)
    if verdict.by_run:
        return JobEnded(verdict, run)
    return JobEnded(verdict, None, _output_of(application))


def _wait(
    process: "subprocess.Popen[bytes]",
    application: "_FollowedApplication",
    run_directory: RunLookout,
    changes: Changes,
    submit_timeout_s: float,
) -> None:
    clock = SystemClock()
    start = clock.now()
    while True:
        ended = process.poll() is not None
        application.look()
        # With spark.yarn.submit.waitAppCompletion=false, spark-submit ends when the application starts.
        if ended and not (process.returncode == 0 and application.continues):
            return
        run = run_directory.look() if application.runs else None
        if run is not None:
            changes.show(run)
        if run is None or run.state is not RunState.RUNNING:
            application.read_output()
        if application.last is None and application.missing and not ended and clock.now() - start > submit_timeout_s:
            process.kill()
            raise InfraError(
                f"spark-submit has brought no application to YARN within {submit_timeout_s:g} s: check the network "
                "and the size of what it uploads, and submit again"
            )
        pause(application.poll_s)


def _output_of(application: "_FollowedApplication") -> str:
    if application.printed:
        return f"the end of what the driver printed:\n{application.printed}"
    return application.last.output_place if application.last is not None else ""


class _FollowedApplication:
    """The application of a job, as it was reported last."""

    def __init__(
        self, reports: Reports, printed_by_submit: Callable[[], str], show: Callable[[str], None], poll_s: float
    ) -> None:
        self.last: SubmittedApplication | None = None
        """None until the application has been reported."""
        self.printed = ""
        """The end of the driver's output, as its node returned it last."""
        self.missing = False
        """The cluster answers, and has no such application."""
        self.poll_s = poll_s
        self._reports = reports
        self._printed_by_submit = printed_by_submit
        self._show = show
        self._shown = ""
        self._clock = SystemClock()
        self._reported_at = 0.0
        self._missing_since = 0.0

    @property
    def continues(self) -> bool:
        """Whether it has not ended after spark-submit has, as far as is known: a ResourceManager may be down, or just
        have restarted."""
        if self.last is None or self.last.over or not self._reports.lasting:
            return False
        if self.missing:
            return self._clock.now() < self._missing_since + SETTLE_TIMEOUT_S
        return self._clock.now() < self._reported_at + OUTAGE_TIMEOUT_S

    @property
    def runs(self) -> bool:
        """Whether its driver may run: also true while nothing reports it."""
        return not self.missing and (self.last is None or self.last.runs)

    def look(self) -> None:
        """Read the newest report, and show the application when its state has changed."""
        applications = self._reports.applications(self._printed_by_submit())
        if applications is not None and not applications and not self.missing:
            self._missing_since = self._clock.now()
        self.missing = applications is not None and not applications
        if not applications:
            return
        self.last = applications[0]
        self._reported_at = self._clock.now()
        if applications[0].line != self._shown:
            self._shown = applications[0].line
            self._show(self._shown)

    def read_output(self) -> None:
        """Read the driver's output, which its node deletes soon after the end."""
        self.printed = self._reports.driver_output() or self.printed

    def settle(self) -> None:
        """Query until the application is over: spark-submit may know its end first."""
        clock = SystemClock()
        start = clock.now()
        self.read_output()
        self.look()
        while self.last is not None and not self.last.over and self._reports.lasting:
            if clock.now() - start > SETTLE_TIMEOUT_S:
                return
            pause(self.poll_s)
            self.look()


def _interruption_text(application: SubmittedApplication | None, manager: str) -> str:
    if application is None:
        return f"interrupted before {manager} had the application"
    return f"interrupted; {application.id} continues without this command: {application.end_command} ends it"


@contextmanager
def _started(line: Sequence[str], output: IO[bytes] | None) -> "Iterator[subprocess.Popen[bytes]]":
    """A spark-submit that has ended at the end of the block, and that ends when this process dies. With a driver that
    prints here, it has time to end by itself."""
    parent = os.getpid()
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        preexec_fn=lambda: die_with_parent(signal.SIGTERM, parent),
    )
    try:
        yield process
    finally:
        # Its driver is elsewhere, and an interrupt of this command has not reached it: without this, its end takes a
        # minute.
        if output is not None:
            process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def _tail(printed: IO[bytes]) -> str:
    """The end of what spark-submit has printed. It writes at the position of the file, which this leaves alone."""
    end = os.fstat(printed.fileno()).st_size
    return os.pread(printed.fileno(), _TAIL_BYTES, max(0, end - _TAIL_BYTES)).decode(errors="replace")
