"""The third stage of a run: its directory has its `run.json`, and with it the run has its name."""

import secrets
from dataclasses import replace
from typing import NewType

from sparktrain.base.clock import SystemClock
from sparktrain.driver.prepare.attached_run import AttachedRun
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import plan as plans

NAMES = 16
"""Number of other names to try where the generated one is taken: each ends in four random hexadecimal digits."""

NamedRun = NewType("NamedRun", AttachedRun)
"""An attached run that has its `run.json`: of all drivers that call for it at once, others find it now."""


def take_name(run: AttachedRun) -> NamedRun:
    """Store the plan and `run.json`, which takes the name. Blocks on the store.

    Raises OSError; RunDirectoryError when another driver has started a run of that name since `attach`.
    """
    definition = run.definition
    if not run.call.resume_rules.unnamed:
        if not put_run_json(run) and run.stored_run is None:
            raise RunDirectoryError(
                f"run directory {definition.where} is in use: another driver has started a run of this name at the "
                "same time; wait for its end, or choose another name"
            )
        return NamedRun(run)
    # A generated name has the second of its call, and two calls within a second must not share a run.
    names = (f"{definition.spec.name}-{secrets.token_hex(2)}" for _ in range(NAMES))
    for candidate in (run, *(_renamed(run, name) for name in names)):
        layout = candidate.definition.layout
        if not definition.store.exists(layout.spec) and put_run_json(candidate):
            return NamedRun(candidate)
    raise RunDirectoryError(
        f"{definition.where} and {NAMES} directories with names that start like that exist already: pass a name"
    )


def put_run_json(run: AttachedRun) -> bool:
    """Store the plan, and `run.json` if absent; returns whether it was absent. Blocks on the store."""
    definition = run.definition
    plans.write(definition.store, definition.layout, definition.plan, definition.code)
    overview = plans.overview(definition.plan, str(definition.space), run.trials, SystemClock().wall())
    return definition.store.put_if_absent(definition.layout.spec, overview)


def _renamed(run: AttachedRun, name: str) -> AttachedRun:
    call = run.call.with_spec(replace(run.definition.spec, name=name))
    return replace(run, call=replace(call, definition=replace(call.definition, layout=RunLayout(name))))
