"""Trials that users add to a running sweep: a file for each in the run directory, which its driver takes."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.config.param_values import plain
from sparktrain.config.sampler_names import OBJECT
from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.submission import current_user, new_name, pending_requests
from sparktrain.runs.history import look
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.next_commands import next_commands
from sparktrain.runs.view import RunState, RunView
from sparktrain.runs.watcher import Observer
from sparktrain.search.space_json import from_document
from sparktrain.search.warm_sampler import Places
from sparktrain.store.base import Store

MEMO = "enqueued"
"""The entry in the memo of a suggestion that has the ids of the requests that it answers."""
STUDY = f"{OBJECT}sparktrain.search.study_sampler.StudySampler"
"""The stored name of the sampler of `sparktrain.optuna`."""
MOST_BYTES = 2**20
"""Of one request."""


class EnqueuedTrial(Struct, frozen=True, kw_only=True):
    """A trial that a user adds."""

    id: str
    params: dict[str, Any]
    user: str = ""
    at: float = 0.0
    """When, in seconds since 1970."""


def enqueue(place: RunLocation, params: Mapping[str, Any], clock: Clock | None = None) -> EnqueuedTrial:
    """Add a trial with `params` to the running sweep at `place`: its driver starts it with the next free slot.

    Blocks on the store, and up to 2 s on a driver that does not answer. Raises SpecError for parameters outside of the
    space, and for a run that takes no more trials; OSError when the store fails.
    """
    clock = clock or SystemClock()
    view = Observer(place, clock).look()
    _check_takes_more(view)
    case = _checked(place, params)
    now = clock.wall()
    name = new_name(place.store, place.layout.enqueued_folder, now)
    trial = EnqueuedTrial(id=name, params=case, user=current_user(), at=now)
    content = msgspec.json.encode(trial)
    if len(content) > MOST_BYTES:
        raise SpecError(f"the parameters have {len(content):,} bytes, and {MOST_BYTES:,} is the most: pass less")
    place.store.put_if_absent(place.layout.enqueued(trial.id), content)
    return trial


def pending(store: Store, layout: RunLayout, known_ids: Collection[str]) -> list[EnqueuedTrial]:
    """The requests that are not among `known_ids`, the oldest first. Blocks. Raises OSError."""
    return pending_requests(store, layout.enqueued_folder, EnqueuedTrial, known_ids)


def _check_takes_more(view: RunView) -> None:
    if view.kind != "sweep":
        raise SpecError(f"{view.name} is a run of one gang, and only a sweep takes more trials: see sparktrain run")
    extend = f"to give it more: {view.commands.extend(view.directory)}"
    if view.state is RunState.ENDED:
        raise SpecError(f"{view.name} has ended, so no trial can be added; {extend}")
    if view.state is RunState.GONE:
        how = view.commands.how_to_resume(view.directory, view.name)
        raise SpecError(f"the driver of {view.name} does not answer, so no trial can be added: resume it first: {how}")
    if view.total is not None and len(view.trials) >= view.total:
        raise SpecError(
            f"all {view.total} trials of {view.name} were started or wait for a slot, and an added one counts as one "
            f"of them; once the sweep has ended, {extend}"
        )


def _checked(place: RunLocation, params: Mapping[str, Any]) -> dict[str, Any]:
    """The case of the space with these parameters. Where the space is not stored, the driver checks them."""
    plain_params = {name: plain(value, f"parameter {name!r}") for name, value in params.items()}
    stored_run = look(place.store, place.layout)
    if stored_run is None:
        raise RunDirectoryError(f"{place.where} is no longer a run directory: its run.json was deleted")
    commands = next_commands(stored_run.plan)
    if stored_run.plan.sampler == STUDY:
        raise SpecError(
            "the trials of this run get their parameters from a study: call study.enqueue_trial(...) in its program"
        )
    if commands.unstored == "space":
        return plain_params
    space = from_document(stored_run.plan.space)
    case, problem = Places(space).find(plain_params)
    if case is None:
        raise SpecError(f"the parameters are outside of the space: {problem}; correct them")
    if stored_run.plan.sampler is msgspec.UNSET:
        for trial in stored_run.sweep().trials.values():
            if trial.params == case:
                raise SpecError(
                    f"trial {trial.id} has these parameters already, and a grid or a list runs each of its cases once: "
                    "name another one"
                )
    return case
