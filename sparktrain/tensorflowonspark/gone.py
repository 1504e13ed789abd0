"""Modules of the original that have nothing to do here: each name in them raises AttributeError with the reason."""

import sys
from types import ModuleType
from typing import NoReturn

_PACKAGE, _, _ = __name__.rpartition(".")

REASONS = {
    "TFManager": "no process serves queues of rows: ctx.mgr is a handle of the member, and ctx.get_data_feed() has the "
    "rows",
    "TFSparkNode": "members are processes of sparktrain's agents, not Spark tasks: TFCluster.run() starts them, and "
    "map_fun gets its ctx",
    "marker": "the ends of partitions and feeds are messages of sparktrain: see ctx.get_data_feed().should_stop()",
    "reservation": "members are announced to sparktrain's coordinator, which authenticates them: call "
    "cluster.shutdown() to end a cluster",
}
"""Why each module is gone, and what to write."""


class GoneModule(ModuleType):
    """A module that can be imported, with nothing in it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{_PACKAGE}.{name}", f"Gone: {reason}.")
        self._shown = f"{_PACKAGE.rpartition('.')[2]}.{name}"
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._shown}.{name} is gone: {self._reason}")


def put_in_place() -> dict[str, ModuleType]:
    """Make imports find these modules; they are returned by name."""
    modules: dict[str, ModuleType] = {name: GoneModule(name, reason) for name, reason in REASONS.items()}
    sys.modules.update({module.__name__: module for module in modules.values()})
    return modules
