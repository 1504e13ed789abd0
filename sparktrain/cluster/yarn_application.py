"""An application on YARN, as its ResourceManager describes it. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparktrain.cluster.yarn_container import CONTAINER

_OVER = ("FINISHED", "FAILED", "KILLED")
_WAITING = re.compile(r"(?:\[[^]]*\]\s*)?(.+?)\s*(?:Details\b.*)?$", re.DOTALL)
"""Of the diagnostics while YARN has no room for the driver: without the time, and details that change."""
_SHOWN_CHARACTERS = 500


class Application(Struct, frozen=True):
    """What the ResourceManager tells about one application."""

    id: str
    state: str
    """Such as ACCEPTED, RUNNING, FINISHED."""
    final_status: str
    """UNDEFINED until its end; then SUCCEEDED, FAILED or KILLED, which may be wrong."""
    diagnostics: str = ""
    master: str = ""
    """`host:port` of the node that the driver's container is on; empty until there is one."""
    logs_url: str = ""
    """The page of what that container prints; empty as well."""

    @property
    def over(self) -> bool:
        """It will not change any more."""
        return self.state in _OVER

    @property
    def attempt(self) -> int:
        """How often YARN has started its driver, as far as it is known."""
        found = CONTAINER.search(self.logs_url)
        return int(found["attempt"]) if found is not None else 1

    @property
    def line(self) -> str:
        """How it stands, for people."""
        if self.over:
            return f"{self.id} is {self.final_status}"
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        if self.state == "ACCEPTED" and (why := _WAITING.match(self.diagnostics)):
            return f"{self.id} is ACCEPTED{again}: {brief(why[1])}"
        return f"{self.id} is {self.state}{f' on {self.master}' if self.master else ''}{again}"


def application_of(told: Mapping[str, Any]) -> Application:
    """From an answer of the ResourceManager's REST API."""
    return Application(
        id=str(told["id"]),
        state=str(told["state"]),
        final_status=str(told.get("finalStatus", "UNDEFINED")),
        diagnostics=str(told.get("diagnostics") or "").strip(),
        master=str(told.get("amHostHttpAddress") or ""),
        logs_url=str(told.get("amContainerLogs") or ""),
    )


def brief(text: str) -> str:
    """The beginning of `text`, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_CHARACTERS else f"{flat[:_SHOWN_CHARACTERS]}..."
