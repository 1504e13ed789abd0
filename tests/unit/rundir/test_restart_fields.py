"""A restart in files has the flags that it has always had, and is read from them."""

from typing import Any

import pytest
from msgspec import ValidationError, convert

from sparktrain.rundir.restart_fields import stored, with_how
from sparktrain.state.outcome import FailureKind, Restart, RestartHow

BEFORE = {"rank": 1, "host": "b", "kind": "lost", "cause": "gone", "seconds": 0.5, "resumed_from_step": 8}
BEFORE |= {"steps_lost": 0, "loss": None}
FLAGS = ("alone", "paused", "healed", "drained")


@pytest.mark.parametrize(
    ("how", "flags"),
    [
        ("restarted", ()), ("paused", ("paused",)), ("drained", ("paused", "drained")), ("alone", ("alone",)),
        ("healed", ("alone", "healed")), ("shrunk", ("alone", "healed")), ("joined", ("alone", "paused", "healed")),
        ("moved", FLAGS),
    ],
)  # fmt: skip
def test_each_way_has_its_flags(how: str, flags: tuple[str, ...]) -> None:
    size = {"members": 2, "full_size": 3} if how == "shrunk" else {"members": None, "full_size": None}
    fields: dict[str, Any] = {**BEFORE, **{flag: flag in flags for flag in FLAGS}, **size, "reached_step": 9}
    restart = convert(with_how(fields), Restart)
    assert restart == Restart(1, "b", FailureKind.LOST, "gone", 0.5, 8, 0, how=RestartHow(how), **size, reached_step=9)
    assert tuple(flag for flag in FLAGS if getattr(restart, flag)) == flags, "what users read"
    assert list(stored(restart).items()) == list(fields.items()), "an older version reads the same fields"


@pytest.mark.parametrize("fields", [None, [], {**BEFORE, "healed": "perhaps"}])
def test_what_has_no_flags_is_refused(fields: Any) -> None:
    with pytest.raises(ValidationError):
        with_how(fields)


def test_a_record_of_a_version_without_flags_is_a_restart() -> None:
    assert convert(with_how(BEFORE), Restart).how is RestartHow.RESTARTED
