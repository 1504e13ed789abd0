"""Where the reports of a submitted application come from: YARN's ResourceManager, or spark-submit itself.

Both have the same methods, which block for some seconds at most, for one thread. `lasting` is whether reports continue
after the end of spark-submit.
"""

from collections.abc import Sequence

from sparktrain.cluster.driver_pod import DriverPod, driver_pod
from sparktrain.cluster.yarn_application import Application
from sparktrain.cluster.yarn_client import ResourceManager, driver_output

SubmittedApplication = Application | DriverPod


class YarnReports:
    """Those of the application with a tag, by the ResourceManager of Hadoop's configuration."""

    manager = Application.manager
    lasting = True

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._resource_manager = ResourceManager.configured()
        self._last: Application | None = None

    def applications(self, printed: str) -> Sequence[Application] | None:
        """The newest first; None where no ResourceManager answers. What spark-submit has `printed` is not needed."""
        applications = self._resource_manager.applications(self._tag)
        self._last = applications[0] if applications else self._last
        return applications

    def driver_output(self) -> str:
        """The end of what the driver has printed, which its node deletes soon; empty where it has none."""
        return driver_output(self._last) if self._last is not None else ""


class PodReports:
    """Those of the driver's pod that spark-submit prints while it waits for it. No other client of Kubernetes is
    needed, and no right beside those of spark-submit."""

    manager = DriverPod.manager
    lasting = False

    def __init__(self) -> None:
        self._last: DriverPod | None = None

    def applications(self, printed: str) -> Sequence[DriverPod] | None:
        """The pod, by the end of what spark-submit has `printed`; None before the first report."""
        self._last = driver_pod(printed) or self._last
        return [self._last] if self._last is not None else None

    def driver_output(self) -> str:
        """Empty: only the API server has it."""
        return ""


Reports = YarnReports | PodReports
