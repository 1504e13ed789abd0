"""How parameter servers combine the gradients of their members."""

from enum import StrEnum

from msgspec import Struct

from sparktrain.config.param_values import did_you_mean, shown
from sparktrain.errors import SpecError


class ServerMode(StrEnum):
    """When a gradient counts, and by how much."""

    ASYNC = "async"  # at once, whatever came meanwhile
    STALENESS_AWARE = "staleness-aware"  # at once, at a rate divided by its staleness
    SYNC = "sync"  # together with those of the other members
    LOCAL_SGD = "local-sgd"  # in its member alone, which sends how far it has come after some steps


class ServerSettings(Struct, frozen=True):
    """The settings of all servers of one gang. Construction raises SpecError for a value that breaks its rule."""

    mode: ServerMode = ServerMode.ASYNC
    workers: int = 1
    """Members that train."""
    backup_workers: int = 0
    """How many gradients of a round of `sync` need not come: the first `workers - backup_workers` count (Chen et al.
    2016, 'Revisiting Distributed Synchronous SGD', section 3)."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise SpecError(f"workers ({self.workers}) must be at least 1: pass how many members train")
        if self.backup_workers < 0:
            raise SpecError(f"backup_workers ({self.backup_workers}) must be at least 0: pass 0 for none")
        if self.backup_workers and self.mode is not ServerMode.SYNC:
            raise SpecError(
                f"backup_workers ({self.backup_workers}) with mode {self.mode.value!r}: only 'sync' waits for "
                "gradients that a backup could replace; leave it out, or pass mode 'sync'"
            )
        if self.backup_workers >= self.workers:
            raise SpecError(
                f"backup_workers ({self.backup_workers}) must be less than workers ({self.workers}): at least one "
                "gradient of each round must count; lower it"
            )

    @property
    def in_rounds(self) -> bool:
        """Whether members wait for each other."""
        return self.mode is ServerMode.SYNC

    @property
    def local(self) -> bool:
        """Whether members train by themselves between two pushes, with optimizers of their own."""
        return self.mode is ServerMode.LOCAL_SGD


def server_mode(value: object, subject: str = "ps_mode") -> ServerMode:
    """The mode named `value`. Raises SpecError for any other value."""
    names = [mode.value for mode in ServerMode]
    if isinstance(value, str) and value in names:
        return ServerMode(value)
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    raise SpecError(
        f"{subject} ({shown(value)}) must be one of {', '.join(map(repr, names))}{hint or '; pass one of them'}"
    )
