"""`RunLimits` of a run from the fields that matter to a test: of its own, of its `SweepSpec` and of its `GangSpec`."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sparktrain.config.gang_spec import GangSpec, Role
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state.events import Allotment, RunLimits

_OF_GANG = {field.name for field in fields(GangSpec)}


def run_limits(size: int = 1, roles: Sequence[Role] = (), **values: Any) -> RunLimits:
    """The limits of a run with gangs of `size` members, or of members with these `roles`; no failures end it."""
    members = tuple(roles) or (Role.CHIEF, *[Role.WORKER] * (size - 1))
    of_pool = {name: values.pop(name) for name in Allotment.__struct_fields__ if name in values}
    own = {name: values.pop(name) for name in RunLimits.__struct_fields__ if name in values}
    of_gang = {name: values.pop(name) for name in _OF_GANG if name in values}
    workers = sum(role in (Role.CHIEF, Role.WORKER) for role in members)
    # Set later: histories combine rules and repeats that a specification refuses together.
    unchecked = {name: values.pop(name) for name in ("stopper", "repeats") if name in values}
    spec = SweepSpec(gang=GangSpec(workers=workers, **of_gang), **{"name": "run", "max_failures": None, **values})
    for name, value in unchecked.items():
        object.__setattr__(spec, name, value)
    return RunLimits(spec=spec, roles=members, allotment=Allotment(**of_pool), **own)
