"""Runs at a stage, for tests and benchmarks of what follows it."""

from dataclasses import replace
from typing import Any

from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.display.progress import Display, NullDisplay
from sparktrain.driver.journal_writer import JournalPort
from sparktrain.driver.prepare.attached_run import AttachedRun, attach
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.naming import NamedRun, take_name
from sparktrain.driver.prepare.owned_run import OwnedRun, claim
from sparktrain.driver.prepare.ready_run import request_of
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.driver.run_request import RunRequest
from sparktrain.protocol.messages import Code
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.history import this_driver
from sparktrain.runs.plan import Plan, spec_fields
from sparktrain.search.sampler import Sampler
from sparktrain.search.space import Space
from sparktrain.search.space_json import to_document
from sparktrain.state.events import Allotment
from sparktrain.state.records import DriverStarted
from sparktrain.store.base import Store


def in_store(call: CheckedCall, store: Store) -> CheckedCall:
    """The call with its run in `store`."""
    return replace(call, definition=replace(call.definition, store=store))


def with_rules(call: CheckedCall, **rules: Any) -> CheckedCall:
    """The call with other fields of its rules about a run that exists."""
    return replace(call, resume_rules=replace(call.resume_rules, **rules))


def named(call: CheckedCall) -> NamedRun:
    """The run with its directory."""
    return take_name(attach(call))


def owned(call: CheckedCall, driver: DriverIdentity | None = None) -> OwnedRun:
    """The run as `driver` owns it."""
    return claim(named(call), driver or this_driver())


def requested(
    call: CheckedCall, agents: int = 1, display: Display | None = None, driver: DriverIdentity | None = None
) -> RunRequest:
    """The run as a coordinator of `driver` gets it."""
    return request_of(owned(call, driver), agents, display or NullDisplay())


def plain_request(
    spec: SweepSpec, space: Space, sampler: Sampler, store: Store, journal: JournalPort, agents: int = 2
) -> RunRequest:
    """A run of no call, which is in no directory."""
    plan = Plan(
        kind="sweep",
        function="train",
        code="",
        parts={},
        preload=(),
        space=to_document(space, spec.trials),
        data_version=None,
        spec=spec_fields(spec),
    )
    definition = RunDefinition(
        plan=plan, spec=spec, space=space, code=Code("", b""), store=store, layout=RunLayout(spec.name)
    )
    run = NamedRun(AttachedRun(call=CheckedCall(definition=definition)))
    return RunRequest(
        owned=OwnedRun(run=run, journal=journal, contents=JournalContents((), 0, ())),
        sampler=sampler,
        total=sampler.total,
        allotment=Allotment(agents=agents),
        display=NullDisplay(),
        driver_started=DriverStarted(plan="", at=0.0),
    )


def with_spec(work: RunRequest, spec: SweepSpec) -> RunRequest:
    """The request with another specification."""
    run = work.owned.run
    return replace(work, owned=replace(work.owned, run=replace(run, call=run.call.with_spec(spec))))
