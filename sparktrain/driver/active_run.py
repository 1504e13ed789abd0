"""What a coordinator has of one run while it is on."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, RunId
from sparktrain.driver.journal_writer import JournalWriter
from sparktrain.driver.metric_recorder import MetricRecorder
from sparktrain.driver.progress_builder import ProgressPace, Tally
from sparktrain.driver.run_request import RunRequest
from sparktrain.driver.sampler_thread import SamplerThread
from sparktrain.driver.uploads import Uploads
from sparktrain.errors import BugError
from sparktrain.rundir.metric_log import MetricLog
from sparktrain.state import commands as do
from sparktrain.state.sweep import Sweep


class ActiveRun:
    """A run that a coordinator is on."""

    def __init__(
        self,
        work: RunRequest,
        clock: Clock,
        knows: Callable[[AgentId], bool],
        perform: Callable[["ActiveRun", do.Command], None],
        background: Callable[[Coroutine[None, None, None], "ActiveRun"], None],
    ) -> None:
        """`knows` is whether an agent is there, `perform` performs a command, and `background` runs a task, and ends
        the run by its error."""
        self.work = work
        self.id = RunId(work.spec.name)
        self.sweep: Sweep | None = None
        """Its trials, once the machine has it."""
        self.uploads = Uploads(work.store, work.layout, knows, clock)
        # The recorder stands before the journal: each report is stored before a checkpoint or a result that came after
        # it counts.
        self.recorder = MetricRecorder(
            work.owned.journal, MetricLog(work.store, work.layout), clock, heard=work.reported
        )
        self.writer = JournalWriter(
            self.recorder,
            work.owned.contents.records,
            partial(perform, self),
            clock,
            lambda task: background(task, self),
        )
        self.tally = Tally(work.spec)
        self.pace = ProgressPace()
        self.started_at = clock.now()
        self.end: asyncio.Future[do.EndRun] = asyncio.get_running_loop().create_future()
        self.outlook = ""
        """The cluster's last report about agents that have not joined."""
        self.error: BaseException | None = None
        """What went wrong in the driver itself, such as in the sampler."""
        self.sampling = SamplerThread(clock)
        self.hurried = False
        """It was stopped at once, as by Ctrl-C."""

    @property
    def trials(self) -> Sweep:
        """Its trials. Raises BugError before the machine has it."""
        if self.sweep is None:
            raise BugError(f"a command for run {self.id} came before its start")
        return self.sweep
