"""Notices to people: that a run has ended, a first trial has failed, or nothing happens."""

import json
import logging
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Literal

from sparktrain.base import formatting
from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.boundary import message_of, users_error
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.config.tracking_options import masked
from sparktrain.driver.tracking.callback import (
    Callback,
    TrackedEnd,
    TrackedReport,
    TrackedResult,
    TrackedRun,
    TrackedTrial,
)

COMMAND_S = 30.0
"""How long a command may run."""
KILLED_S = 2.0
"""How long one that was killed may hold its output."""
REQUEST_S = 10.0
"""How long one request to an address may take."""
BUDGET_S = 20.0
"""How long all attempts for one notice may take."""
_ERROR_LINES = 5

logger = logging.getLogger("sparktrain")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What `notify=` sends to people or to a service, about one run."""

    event: Literal["ended", "first_failure", "no_progress"]
    run: str
    """Name of the run."""
    directory: str
    text: str
    """One line for people."""
    status: str = ""
    """The status of the run, once it has ended, or of the trial that failed."""
    trial: int | None = None
    """The number of the trial that failed first, or of the best one at the end."""


class NoticeSender(Callback):
    """Sends the notices of one run to `target`: a function, a shell command, or an http(s) address."""

    def __init__(self, target: str | Callable[[Notice], object], after_s: float, clock: Clock | None = None) -> None:
        """Nothing happens, once no report and no end of a trial has come for `after_s` seconds."""
        self._target = target
        self._after_s = after_s
        self._clock = clock or SystemClock()
        self._run: TrackedRun | None = None
        self._failed = False
        self._process = os.getpid()
        self._moved = threading.Event()
        self._over = threading.Event()
        self._sending = threading.Lock()

    def run_started(self, run: TrackedRun) -> None:
        """See base class."""
        self._run = run
        self._failed = False
        self._over.clear()
        spawn(self._watch, "sparktrain-no-progress")

    def reported(self, trial: TrackedTrial, reports: Sequence[TrackedReport]) -> None:
        """See base class."""
        self._moved.set()

    def trial_ended(self, trial: TrackedEnd) -> None:
        """See base class."""
        self._moved.set()
        if self._failed or trial.status not in ("failed", "lost"):
            return
        self._failed = True
        text = f"trial {trial.number} is the first that {'failed' if trial.status == 'failed' else 'was lost'}"
        self._send("first_failure", f"{text}: {trial.error}" if trial.error else text, trial.status, trial.number)

    def run_ended(self, result: TrackedResult) -> None:
        """See base class."""
        self._over.set()
        self._moved.set()
        trials = formatting.count(len(result.trials), "trial")
        best = "" if result.best is None else f", trial {result.best} is the best"
        reason = f": {result.reason}" if result.reason else ""
        self._send(
            "ended", f"the run has ended as {result.status} ({trials}{best}){reason}", result.status, result.best
        )

    def _watch(self) -> None:
        """Send one notice for each pause that is too long."""
        sent = False
        while not self._over.is_set():
            moved = self._moved.wait(self._after_s)
            self._moved.clear()
            if moved:
                sent = False
            elif not sent and not self._over.is_set():
                sent = True
                self._send("no_progress", f"no report and no end of a trial for {self._after_s:.0f} s")

    def _send(self, event: Literal["ended", "first_failure", "no_progress"], text: str, status: str = "",
              trial: int | None = None) -> None:  # fmt: skip
        assert self._run is not None
        run = self._run
        notice = Notice(
            event=event, run=run.name, directory=run.directory, text=f"{run.name}: {text}", status=status, trial=trial
        )
        with self._sending:
            try:
                self._deliver(notice)
            except BaseException as error:  # the user's function may call sys.exit(), which would end this thread
                problem = f"{type(error).__name__}: {message_of(error)}"
                trace = users_error(error) if callable(self._target) else None  # it shows the user's function
                logger.warning("the notice %r was not delivered: %s", notice.text, problem, exc_info=trace)
            finally:
                if os.getpid() != self._process:  # the user's function has forked the driver
                    os._exit(0)

    def _deliver(self, notice: Notice) -> None:
        if callable(self._target):
            self._target(notice)
        elif self._target.startswith(("http://", "https://")):
            post(self._target, notice, self._clock)
        else:
            run_command(self._target, notice)


def run_command(command: str, notice: Notice, timeout_s: float = COMMAND_S) -> None:
    """Run a shell command with the notice in its environment, and as JSON on its standard input. Blocks.

    Raises OSError when it cannot start, takes too long, or ends with another status than 0; its message has the end of
    what the command wrote to its standard error.
    """
    env = {
        **os.environ,
        "SPARKTRAIN_EVENT": notice.event,
        "SPARKTRAIN_RUN": notice.run,
        "SPARKTRAIN_DIRECTORY": notice.directory,
        "SPARKTRAIN_TEXT": notice.text,
    }
    # A session of its own: a command that hangs is killed with all that it has started.
    process = subprocess.Popen(
        command, shell=True, env=env, text=True, errors="backslashreplace", start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _, stderr = process.communicate(json.dumps(asdict(notice)), timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):  # it may have ended just now
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # what it started in a session of its own may hold its output
            process.communicate(timeout=KILLED_S)
        raise OSError(f"the command has not ended within {timeout_s:.3g} s, and was killed") from None
    if process.returncode:
        lines = "; ".join(stderr.strip().splitlines()[-_ERROR_LINES:])
        raise OSError(f"the command has ended with status {process.returncode}{f': {lines}' if lines else ''}")


def post(url: str, notice: Notice, clock: Clock) -> None:
    """Send the notice as JSON, up to three times. Blocks for `BUDGET_S` and one request at most.

    Raises OSError; its message shows the host alone: the rest of an address may be a secret.
    """
    content = json.dumps({**asdict(notice), "content": notice.text}).encode()  # "text" and "content": what chats show
    request = urllib.request.Request(url, content, {"Content-Type": "application/json", "User-Agent": "sparktrain"})
    retries = RetryBudget(BUDGET_S, Backoff(1.0, 5.0), clock)
    for attempt in range(3):
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S):
                return
        except urllib.error.HTTPError as error:
            problem = f"status {error.code}"
            again = error.code >= 500 or error.code == 429
            error.close()
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "reason", "") or type(error).__name__)
            again = True
        if not again or attempt == 2 or not retries.wait():
            break
    raise OSError(f"{masked(url)} has not taken it: {problem}")
