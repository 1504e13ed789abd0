"""A restart in a journal and in `results.json`: four flags in place of `how`, as older versions read and write it."""

from typing import Any

from msgspec import Struct, to_builtins

from sparktrain.base.decoding import converted
from sparktrain.state.outcome import Restart, RestartHow


class _Flags(Struct, frozen=True, kw_only=True):
    alone: bool = False
    paused: bool = False
    healed: bool = False
    drained: bool = False
    members: int | None = None

    @property
    def how(self) -> RestartHow:
        if not self.paused and not self.alone:
            return RestartHow.RESTARTED
        if not self.alone:
            return RestartHow.DRAINED if self.drained else RestartHow.PAUSED
        if self.members is not None:
            return RestartHow.SHRUNK
        if self.paused:
            return RestartHow.MOVED if self.drained else RestartHow.JOINED
        return RestartHow.HEALED if self.healed else RestartHow.ALONE


def stored(restart: Restart) -> dict[str, Any]:
    """`restart` as a file has it."""
    fields: dict[str, Any] = {}
    for name, value in to_builtins(restart).items():
        flags = ("alone", "paused", "healed", "drained")
        fields |= {flag: getattr(restart, flag) for flag in flags} if name == "how" else {name: value}
    return fields


def with_how(fields: Any) -> Any:
    """What a file has of a restart, with the fields of `Restart`.

    Raises ValidationError where a flag is none.
    """
    how = converted(fields, _Flags, strict=False).how
    return {**fields, "how": how}
