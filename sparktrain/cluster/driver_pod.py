"""The pod of a driver on Kubernetes, as spark-submit reports it until its end. Pure."""

import re
from typing import ClassVar

from msgspec import Struct

_REPORT = re.compile(r"State changed, new state: *\n(?P<fields>(?:[ \t]+[a-z ]+:.*\n)+)")
_FIELD = re.compile(r"^[ \t]+(?P<name>[a-z ]+): (?P<value>.*)$", re.MULTILINE)
_ABSENT = ("", "N/A")
_FIRST_OF_SIGNALS = 128
_USUAL = ("ContainerCreating", "PodInitializing")
"""What a container waits for in any pod."""


class DriverPod(Struct, frozen=True, kw_only=True):
    """One report of a driver's pod, which has what `yarn_application.Application` has."""

    manager: ClassVar[str] = "Kubernetes"

    id: str
    """Its name."""
    namespace: str
    phase: str
    node: str = ""
    """Empty until the pod is scheduled."""
    waiting: str = ""
    """Why its container has not started; such as ErrImagePull."""
    exit_code: int | None = None
    """Of its container, once that has ended."""
    termination: str = ""
    """How its container has ended: Error, OOMKilled, Completed."""

    @property
    def over(self) -> bool:
        """Whether its phase is final."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def runs(self) -> bool:
        """Whether its driver may run."""
        return self.phase == "Running"

    @property
    def succeeded(self) -> bool:
        """Whether Kubernetes reports that it succeeded."""
        return self.phase == "Succeeded"

    @property
    def status(self) -> str:
        """Its phase."""
        return self.phase

    @property
    def driver_exit(self) -> int | None:
        """The exit code that the driver itself has chosen; None for a signal, too little memory, and success."""
        code = self.exit_code
        return code if code and code < _FIRST_OF_SIGNALS and self.termination == "Error" else None

    @property
    def diagnostics(self) -> str:
        """Why its driver does not run any more."""
        if not self.over:
            return "spark-submit reports it no longer; it was deleted, or the API server does not answer"
        return "" if self.succeeded else f"its container ended with exit code {self.exit_code} ({self.termination})"

    @property
    def line(self) -> str:
        """Its state in one line, for people."""
        words = f"{self.id} is {self.phase}{f' on {self.node}' if self.node else ''}"
        if self.phase != "Pending":
            return words
        why = f": {self.waiting}" if self.waiting not in ("", *_USUAL) else ""
        return f"{words}{why}{self._described if why or not self.node else ''}"

    @property
    def _described(self) -> str:
        return f"; `kubectl describe pod {self.id} --namespace {self.namespace}` prints why"

    @property
    def output_place(self) -> str:
        """Where people find what its driver has printed."""
        return f"`kubectl logs {self.id} --namespace {self.namespace}` prints the driver's output while the pod exists"

    @property
    def end_command(self) -> str:
        """The command that ends it."""
        return f"kubectl delete pod {self.id} --namespace {self.namespace}"


def driver_pod(printed: str) -> DriverPod | None:
    """The newest report in what spark-submit has printed; None where there is none."""
    reports = [dict(_FIELD.findall(report["fields"])) for report in _REPORT.finditer(printed)]
    complete = [fields for fields in reports if "phase" in fields]
    if not complete:
        return None
    fields = {name: "" if value in _ABSENT else value for name, value in complete[-1].items()}
    code = fields.get("exit code", "")
    return DriverPod(
        id=fields["pod name"],
        namespace=fields["namespace"],
        phase=fields["phase"],
        node=fields.get("node name", ""),
        waiting=fields.get("pending reason", ""),
        exit_code=int(code) if code else None,
        termination=fields.get("termination reason", ""),
    )
