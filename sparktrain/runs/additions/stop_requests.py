"""Runs and trials that users stop from any host: a file for each request, which the driver reads."""

from collections.abc import Collection

import msgspec
from msgspec import Struct

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.submission import current_user, new_name, pending_requests
from sparktrain.store.base import Store


class RunStop(Struct, frozen=True, kw_only=True):
    """A user stops a run, or one of its trials."""

    id: str = ""
    trial: int | None = None
    """The number of the trial; None for the whole run."""
    reason: str
    grace_s: float = 0.0
    """How long trials may take to end by themselves."""
    user: str = ""
    at: float = 0.0
    """When, in seconds since 1970."""


def ask_stop(
    store: Store,
    layout: RunLayout,
    reason: str,
    *,
    trial: int | None = None,
    grace_s: float = 0.0,
    clock: Clock | None = None,
) -> None:
    """Ask the driver of a run to stop it, or one of its trials. Blocks on the store; raises OSError.

    It does not wait for the driver, which looks for requests every few seconds.
    """
    now = (clock or SystemClock()).wall()
    request = RunStop(trial=trial, reason=reason, grace_s=grace_s, user=current_user(), at=now)
    store.put_if_absent(layout.stop(new_name(store, layout.stops, now)), msgspec.json.encode(request))


def stop_names(store: Store, layout: RunLayout) -> frozenset[str]:
    """The ids of all requests so far: a later driver leaves them aside. Blocks; raises OSError."""
    return frozenset(path.rpartition("/")[2].removesuffix(".json") for path in store.list(layout.stops))


def pending_stops(store: Store, layout: RunLayout, known_ids: Collection[str]) -> list[RunStop]:
    """The requests that are not among `known_ids`, the oldest first. Blocks; raises OSError."""
    return pending_requests(store, layout.stops, RunStop, known_ids)
