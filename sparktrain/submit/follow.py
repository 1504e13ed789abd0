"""Runs `spark-submit`, and follows its application to the end."""

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from sparktrain.clock import SystemClock, pause
from sparktrain.cluster.yarn_application import Application
from sparktrain.cluster.yarn_client import ResourceManager, driver_output
from sparktrain.display.watch import Changes
from sparktrain.errors import InfraError, RunDirectoryError, SpecError, StoreError
from sparktrain.process_tree import die_with_parent
from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of
from sparktrain.runs.view import RunState, RunView
from sparktrain.runs.watcher import Observer
from sparktrain.submit.verdict import Verdict, verdict_of

SUBMIT_TIMEOUT_S = 900.0
"""For spark-submit to upload what it takes along, until the ResourceManager has the application."""
OUTAGE_TIMEOUT_S = 900.0
"""For the ResourceManager to answer again, where nobody else waits for the application."""
SETTLE_TIMEOUT_S = 30.0
"""For the ResourceManager to know of an application's end, once spark-submit does, and of it at all after a restart."""
END_TIMEOUT_S = 60.0
"""For spark-submit to end after Ctrl-C, which it hears as well."""
POLL_S = 2.0
_TAIL_BYTES = 64 * 1024

logger = logging.getLogger("sparktrain")


class JobEnded(Struct, frozen=True):
    """A job whose driver ran elsewhere, after its end."""

    verdict: Verdict
    run: RunView | None
    """As its directory has it; None where the job has not ended it."""
    output: str = ""
    """What to show of the driver's output, or where it is; empty when the run itself tells enough."""


class Sight:
    """A run directory that may not be there yet, as it is seen from outside. For one thread."""

    def __init__(self, directory: str) -> None:
        self._observer = Observer(place_of(directory, LOOK_TIMEOUT_S), SystemClock())

    def look(self) -> RunView | None:
        """The run as it is now; None where there is none yet, or its store does not answer. Blocks on the store."""
        try:
            return self._observer.look()
        except (RunDirectoryError, FileNotFoundError, StoreError) as error:
            logger.info("the run cannot be seen: %s", error)
            return None


def spark_submit(home: str | None) -> str:
    """The program, of the Spark in `home` where that is set, else the first on the path, else PySpark's own. Raises
    SpecError when there is none."""
    if home:
        return os.path.join(home, "bin", "spark-submit")
    beside = Path(sys.executable).with_name("spark-submit")
    found = shutil.which("spark-submit") or (str(beside) if beside.is_file() else None)
    if found is None:
        raise SpecError(
            "there is no spark-submit on the path: set SPARK_HOME to the folder of a Spark, or install pyspark"
        )
    return found


def run_here(line: Sequence[str]) -> int:
    """Run a job whose driver is on this machine, and prints to this process' stdout and stderr; its exit code, 128 and
    more for a signal. Blocks until it has ended."""
    with _started(line, None) as process:
        code = process.wait()
    return code if code >= 0 else 128 - code


def follow(line: Sequence[str], tag: str, sight: Sight, tell: Callable[[str], None]) -> JobEnded:
    """Run a job whose driver is in a container, and tell how application and run stand, in lines.

    Blocks until the application has ended, also where spark-submit does not wait for that
    (`spark.yarn.submit.waitAppCompletion`), which the ResourceManager can tell then. Raises InfraError when it is not
    submitted in time, and KeyboardInterrupt for Ctrl-C, which the application does not hear.
    """
    seen, before = _Seen(tag, ResourceManager.configured(), tell), sight.look()
    try:
        with TemporaryFile() as said, _started(line, said) as process:
            _wait(process, seen, sight, Changes(tell))
            seen.settle()
            output = _tail(said)
    except KeyboardInterrupt as error:
        seen.look()  # it may have come since the last time
        raise KeyboardInterrupt(_left(seen.application)) from error
    run = sight.look()
    verdict = verdict_of(seen.application, output, run, before.began if before is not None else None)
    if verdict.by_run:
        return JobEnded(verdict, run)
    return JobEnded(verdict, None, _output_of(seen) if seen.application is not None else "")


def _wait(process: "subprocess.Popen[bytes]", seen: "_Seen", sight: Sight, changes: Changes) -> None:
    clock = SystemClock()
    begun = clock.now()
    while True:
        ended = process.poll() is not None
        seen.look()
        if ended and not (process.returncode == 0 and seen.goes_on):
            return
        run = sight.look() if seen.runs else None
        if run is not None:
            changes.show(run)
        if run is None or run.state is not RunState.RUNNING:
            seen.listen()
        if seen.application is None and seen.missing and not ended and clock.now() - begun > SUBMIT_TIMEOUT_S:
            process.kill()
            raise InfraError(
                f"spark-submit has brought no application to YARN within {SUBMIT_TIMEOUT_S:g} s: look at the network "
                "and the size of what it uploads, and submit again"
            )
        pause(POLL_S)


def _output_of(seen: "_Seen") -> str:
    if seen.printed:
        return f"the end of what the driver printed:\n{seen.printed}"
    id = seen.application.id if seen.application is not None else ""
    return (
        f"the driver's output is at its node: `yarn logs -applicationId {id}` prints it where logs are aggregated "
        "(yarn.log-aggregation-enable), else it is below yarn.nodemanager.log-dirs there"
    )


class _Seen:
    """An application, as it was seen last."""

    def __init__(self, tag: str, manager: ResourceManager, tell: Callable[[str], None]) -> None:
        self.application: Application | None = None
        self.printed = ""
        """The end of what the driver has printed, as far as its node has told."""
        self.missing = False
        """The ResourceManager answers, and has no such application."""
        self._tag = tag
        self._manager = manager
        self._tell = tell
        self._told = ""
        self._clock = SystemClock()
        self._heard = 0.0
        self._missed = 0.0

    @property
    def goes_on(self) -> bool:
        """It is not over, as far as the ResourceManager has told: that may be away, and not know it again at once."""
        if self.application is None or self.application.over:
            return False
        if self.missing:
            return self._clock.now() < self._missed + SETTLE_TIMEOUT_S
        return self._clock.now() < self._heard + OUTAGE_TIMEOUT_S

    @property
    def runs(self) -> bool:
        """As far as is known: where the ResourceManager cannot be asked, it may."""
        return not self.missing and (self.application is None or self.application.state == "RUNNING")

    def look(self) -> None:
        found = self._manager.applications(self._tag)
        if found == [] and not self.missing:
            self._missed = self._clock.now()
        self.missing = found == []
        if not found:
            return
        self.application, self._heard = found[0], self._clock.now()
        if found[0].line != self._told:
            self._told = found[0].line
            self._tell(self._told)

    def listen(self) -> None:
        """Ask for the driver's output, which its node forgets soon after the end."""
        if self.application is not None:
            self.printed = driver_output(self.application) or self.printed

    def settle(self) -> None:
        """Look until it is over: spark-submit may know of that first."""
        clock = SystemClock()
        begun = clock.now()
        self.listen()
        self.look()
        while self.application is not None and not self.application.over:
            if clock.now() - begun > SETTLE_TIMEOUT_S:
                return
            pause(POLL_S)
            self.look()


def _left(application: Application | None) -> str:
    if application is None:
        return "interrupted before YARN had the application"
    return (
        f"interrupted; {application.id} goes on without this command: yarn application -kill {application.id} ends it"
    )


@contextmanager
def _started(line: Sequence[str], output: IO[bytes] | None) -> "Iterator[subprocess.Popen[bytes]]":
    """spark-submit, which is gone at the end of the block, and ends when this process dies. Where its driver prints
    here, it has time to end by itself."""
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
        if output is not None:
            process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def _tail(said: IO[bytes]) -> str:
    end = said.seek(0, os.SEEK_END)
    said.seek(max(0, end - _TAIL_BYTES))
    return said.read().decode(errors="replace")
