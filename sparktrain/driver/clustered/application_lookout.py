"""What YARN reports of the application that performs a call, for a client that reads the run directory."""

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.yarn_application import Application, brief
from sparktrain.cluster.yarn_client import ResourceManager, driver_output
from sparktrain.driver.clustered.application_packet import StoredApplication, newest_application
from sparktrain.driver.submitted_jobs.follow import SUBMIT_TIMEOUT_S
from sparktrain.errors import AgentsLostError, SparktrainError
from sparktrain.rundir.coordinator_folder import CallEnd, CoordinatorFolder
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView
from sparktrain.state.ending import Ending

_OUTPUT_CHARACTERS = 1000
"""How much of a driver's output an error has."""


class ApplicationLookout:
    """One application of a run. Methods block on the store or the ResourceManager; for one thread at a time."""

    def __init__(self, place: RunLocation, call: str, application: StoredApplication) -> None:
        self._place = place
        self._layout = place.layout.coordinator(call)
        self._folder = CoordinatorFolder(place.store, self._layout)
        self._application = application
        self._clock = SystemClock()
        self._requested_at: float | None = None
        """By the clock of this process."""
        self._output = ""
        """The end of what the driver has printed, while its node had it."""

    @classmethod
    def newest(cls, place: RunLocation) -> "ApplicationLookout | None":
        """That of the newest call which an application of its own performs; None where none does. Raises OSError."""
        newest = newest_application(place.store, place.layout)
        return None if newest is None else cls(place, *newest)

    def look(self) -> Application | None:
        """The application now; None where YARN has none, or does not answer."""
        applications = self._applications()
        return applications[0] if applications else None

    def end(self, view: RunView | None) -> CallEnd | None:
        """How the call has ended, by its driver, or by that of a later call which has ended the run."""
        if (end := self._folder.look().end) is not None:
            return end
        if view is None or view.state is not RunState.ENDED or view.end is None:
            return None
        # SIGTERM is no end of the call: YARN may start the next driver, or reports why it does not.
        return None if view.end.ending == Ending.TERMINATED else CallEnd()

    def failure(self, view: RunView) -> SparktrainError | None:
        """Why no driver of the call runs any more, nor will; None where one may."""
        applications = self._applications()
        if view.state is RunState.RUNNING or applications is None:
            return None
        if not applications:
            if self._age_s() < SUBMIT_TIMEOUT_S:
                return None  # it is not submitted yet
            return AgentsLostError(
                f"YARN has no application for run {view.name}, which was requested {SUBMIT_TIMEOUT_S:g} s ago or "
                f"earlier; to continue: {_resumption(view)}"
            )
        application = applications[0]
        self._output = driver_output(application, _OUTPUT_CHARACTERS) or self._output
        if not application.over:
            return None
        reason = f": {brief(application.diagnostics)}" if application.diagnostics else ""
        output = f"; the end of what its driver printed: {self._output}" if self._output else ""
        return AgentsLostError(
            f"{application.id} is {application.final_status}{reason}; its driver has not ended run {view.name}; to "
            f"continue: {_resumption(view)}{output}"
        )

    def _age_s(self) -> float:
        """How long ago the application was requested. By the store's clock, as that client's may differ."""
        if self._requested_at is None:
            store = self._place.store
            age_s = store.now(self._place.layout.path) - store.stat(self._layout.application).modified
            self._requested_at = self._clock.now() - age_s
        return self._clock.now() - self._requested_at

    def _applications(self) -> list[Application] | None:
        """Those with the tag: by the configuration of this host, or where the client that submitted had its answer."""
        urls = dict.fromkeys((*ResourceManager.configured().urls, *self._application.urls))
        return ResourceManager(tuple(urls)).applications(self._application.tag)


def _resumption(view: RunView) -> str:
    return view.commands.how_to_resume(view.directory, view.name)
