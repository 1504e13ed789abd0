"""Hosts and agents that users drain while a run lasts: a file for each request, which the driver reads and answers."""

from collections.abc import Collection

import msgspec
from msgspec import Struct

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.errors import SparktrainError, SpecError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.submission import current_user, new_name, pending_requests
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import DrainDecided
from sparktrain.store.base import Store

ANSWER_TIMEOUT_S = 30.0
"""How long a user waits for the driver's answer."""
_LOOK_S = 0.5


class DrainRequest(Struct, frozen=True, kw_only=True):
    """A host or an agent that a user drains."""

    id: str
    host: str = ""
    agent: int | None = None
    """Number of the agent; None where `host` is drained."""
    driver_started: float | None = None
    """When the driver started that gave the agent this number."""
    cancels: bool = False
    """The user drains it no longer."""
    user: str = ""
    at: float = 0.0
    """When, in seconds since 1970."""


def drain(
    place: RunLocation, host: str | None, agent: int | None, clock: Clock | None = None, *, cancels: bool = False
) -> DrainDecided:
    """Drain a host or an agent of the run at `place`, or `cancels` that; returns what its driver has decided.

    Blocks on the store and until the driver answers, 30 s at most. Raises SpecError for a host or an agent that the
    run does not have, and for a run that is over; SparktrainError without an answer; OSError when the store fails.
    """
    if (host is None) == (agent is None):
        raise SpecError("name what to drain: a host with --host HOST, or one agent with --agent N, and not both")
    if host is not None and not host.strip():
        raise SpecError("--host is empty: name a host of the run, as sparktrain status shows it")
    if agent is not None and agent < 0:
        raise SpecError(f"--agent is {agent}: the agents of a run have numbers from 0")
    clock = clock or SystemClock()
    observer = Observer(place, clock)
    view = observer.look()
    _check_runs(view)
    now = clock.wall()
    request = DrainRequest(
        id=new_name(place.store, place.layout.drains, now),
        host="" if host is None else host.strip(),
        agent=agent,
        driver_started=view.times.driver_started,
        cancels=cancels,
        user=current_user(),
        at=now,
    )
    place.store.put_if_absent(place.layout.drain(request.id), msgspec.json.encode(request))
    decided = _answer(observer, request.id, clock)
    if decided.problem:
        raise SpecError(f"{view.name}: {decided.problem}")
    return decided


def pending_drains(store: Store, layout: RunLayout, known_ids: Collection[str]) -> list[DrainRequest]:
    """The requests that are not among `known_ids`, the oldest first. Blocks. Raises OSError."""
    return pending_requests(store, layout.drains, DrainRequest, known_ids)


def _check_runs(view: RunView) -> None:
    if view.state is RunState.ENDED:
        raise SpecError(f"{view.name} has ended: it has no agents to drain")
    if view.state is RunState.GONE:
        how = view.commands.how_to_resume(view.directory, view.name)
        raise SpecError(f"the driver of {view.name} does not answer, so nothing can be drained: resume it first: {how}")


def _answer(observer: Observer, request: str, clock: Clock) -> DrainDecided:
    """The driver's decision. Raises SpecError when the run ends first, and SparktrainError when none comes in time."""
    deadline = clock.now() + ANSWER_TIMEOUT_S
    while True:
        view = observer.look()
        for record in observer.records:
            if isinstance(record, DrainDecided) and record.request == request:
                return record
        _check_runs(view)
        if clock.now() >= deadline:
            raise SparktrainError(
                f"the driver of {view.name} has not answered within {ANSWER_TIMEOUT_S:g} s; it takes the request when "
                "it can: see sparktrain status"
            )
        clock.pause(_LOOK_S)
