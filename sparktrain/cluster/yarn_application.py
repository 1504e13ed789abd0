"""An application on YARN, as its ResourceManager describes it. Pure."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from sparktrain.cluster.yarn_container import CONTAINER

_OVER = ("FINISHED", "FAILED", "KILLED")
_WAITING = re.compile(r"(?:\[[^]]*\]\s*)?(.+?)\s*(?:Details\b.*)?$", re.DOTALL)
"""The diagnostics while YARN has no room for the driver, without the time and details that change."""
_DRIVER_EXIT = re.compile(r"User application exited with (?:status )?(\d+)")
_SHOWN_CHARACTERS = 500


class Application(Struct, frozen=True, kw_only=True):
    """One application, as the ResourceManager reports it."""

    manager: ClassVar[str] = "YARN"

    id: str
    state: str
    """Such as ACCEPTED, RUNNING, FINISHED."""
    final_status: str
    """UNDEFINED until its end; then SUCCEEDED, FAILED or KILLED, which may be wrong."""
    diagnostics: str = ""
    master: str = ""
    """`host:port` of the node that the driver's container is on; empty until there is one."""
    logs_url: str = ""
    """The page with the output of that container; empty until there is one."""

    @property
    def over(self) -> bool:
        """Whether it has reached a final state."""
        return self.state in _OVER

    @property
    def runs(self) -> bool:
        """Whether its driver may run."""
        return self.state == "RUNNING"

    @property
    def succeeded(self) -> bool:
        """Whether YARN reports that it succeeded."""
        return self.final_status == "SUCCEEDED"

    @property
    def status(self) -> str:
        """Its final status once it is over, before that its state."""
        return self.final_status if self.over else self.state

    @property
    def driver_exit(self) -> int | None:
        """The exit code with which its driver has failed, as far as YARN reports it."""
        match = _DRIVER_EXIT.search(self.diagnostics) if self.final_status == "FAILED" else None
        return int(match[1]) if match is not None else None

    @property
    def attempt(self) -> int:
        """How many times YARN has started its driver, as far as known."""
        match = CONTAINER.search(self.logs_url)
        return int(match["attempt"]) if match is not None else 1

    @property
    def line(self) -> str:
        """Its state in one line, for people."""
        if self.over:
            return f"{self.id} is {self.final_status}"
        attempt = f", attempt {self.attempt}" if self.attempt > 1 else ""
        if self.state == "ACCEPTED" and (why := _WAITING.match(self.diagnostics)):
            return f"{self.id} is ACCEPTED{attempt}: {brief(why[1])}"
        return f"{self.id} is {self.state}{f' on {self.master}' if self.master else ''}{attempt}"

    @property
    def output_place(self) -> str:
        """Where people find what its driver has printed."""
        return (
            f"the driver's output is on its node: `yarn logs -applicationId {self.id}` prints it where YARN aggregates "
            "logs (yarn.log-aggregation-enable), otherwise it is below yarn.nodemanager.log-dirs there"
        )

    @property
    def end_command(self) -> str:
        """The command that ends it."""
        return f"yarn application -kill {self.id}"


def application_of(answer: Mapping[str, Any]) -> Application:
    """The application in an answer of the ResourceManager's REST API."""
    return Application(
        id=str(answer["id"]),
        state=str(answer["state"]),
        final_status=str(answer.get("finalStatus", "UNDEFINED")),
        diagnostics=str(answer.get("diagnostics") or "").strip(),
        master=str(answer.get("amHostHttpAddress") or ""),
        logs_url=str(answer.get("amContainerLogs") or ""),
    )


def brief(text: str) -> str:
    """The first part of `text`, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_CHARACTERS else f"{flat[:_SHOWN_CHARACTERS]}..."
