"""The backend of a gang when the user names none, and why."""

from collections.abc import Callable

from msgspec import Struct

from sparktrain.cluster.preflight import is_installed
from sparktrain.config.gang_spec import Backend

HOROVOD = "horovod"


class Choice(Struct, frozen=True):
    """A backend that was chosen for the user."""

    backend: Backend
    why: str
    tentative: bool = False
    """It is not known yet whether executors have it."""

    @property
    def line(self) -> str:
        """The choice in one line, for the user."""
        return f"backend {self.backend.value}: {self.why}"

    def settled(self, there: bool) -> "Choice":
        """The same once it is known whether Horovod is `there`, on executors."""
        if there:
            return Choice(self.backend, "driver and executors have Horovod")
        return Choice(Backend.TENSORFLOW, "executors have no Horovod, which is faster for large models")

    def kept(self, before: Backend) -> "Choice":
        """The backend of a resumed run, regardless of what would be chosen now."""
        return Choice(before, "the run started with it")


def choose(servers: bool, strategy: bool, installed: Callable[[str], bool] = is_installed) -> Choice:
    """For a gang of several members, with `servers` when some of them are parameter servers or evaluators, and
    `strategy` when the function makes one of TensorFlow's.

    Horovod where driver and executors have it, else TensorFlow's own collectives, which need nothing else.
    """
    if servers:
        return Choice(Backend.TENSORFLOW, "only it has parameter servers and evaluators")
    if strategy:
        return Choice(Backend.TENSORFLOW, "the function makes a strategy, which only it connects")
    if not (installed("tensorflow") and installed(HOROVOD)):
        return Choice(Backend.TENSORFLOW, "the driver has no Horovod, which is faster for large models")
    return Choice(Backend.HOROVOD, "the driver has Horovod", tentative=True)
